//! `PublicKeys` decides as `Event::verify` does, in bounded memory, and no flood takes the places
//! of authors who come again.

#![cfg(feature = "signatures")]

use codecs::{Event, PublicKeys, VerifyError, VerifyLevel};
use secp256k1::{Keypair, SECP256K1, SecretKey};

/// A note of the author with this secret, valid in every respect.
fn note(author: u32, created_at: i64) -> Event<'static> {
    let mut secret = [1; 32];
    secret[..4].copy_from_slice(&author.to_be_bytes());
    let pair = Keypair::from_secret_key(SECP256K1, &SecretKey::from_byte_array(secret).unwrap());
    let pubkey = pair.x_only_public_key().0.serialize();
    let mut event = Event {
        id: [0; 32],
        pubkey,
        created_at,
        kind: 1,
        tags: vec![],
        content: "a note".into(),
        sig: [0; 64],
    };
    event.id = event.compute_id();
    event.sig = SECP256K1.sign_schnorr_no_aux_rand(&event.id, &pair).to_byte_array();
    event
}

fn is_known(keys: &PublicKeys, event: &Event<'_>) -> bool {
    let before = keys.known();
    assert_eq!(keys.verify(event, VerifyLevel::Full), Ok(()));
    keys.known() > before
}

#[test]
fn every_event_is_judged_as_without_the_map() {
    let keys = PublicKeys::at_most(8);
    let valid = note(1, 1);
    let another_sig = note(1, 2).sig;
    let mut no_key = Event { pubkey: [0xff; 32], ..valid.clone() };
    no_key.id = no_key.compute_id();
    let mut another_author = Event { pubkey: note(2, 1).pubkey, ..valid.clone() };
    another_author.id = another_author.compute_id();
    let events = [
        valid.clone(),
        Event { sig: another_sig, ..valid.clone() },
        Event { sig: [0xff; 64], ..valid.clone() },
        Event { content: "altered".into(), ..valid.clone() },
        no_key,
        another_author,
    ];
    // Before the author is known, and after.
    for _ in 0..3 {
        for level in VerifyLevel::ALL {
            for event in &events {
                assert_eq!(keys.verify(event, level), event.verify(level), "{level} {event:?}");
            }
        }
    }
    assert_eq!(keys.verify(&events[4], VerifyLevel::Full), Err(VerifyError::PublicKey));
    assert!(is_known(&keys, &valid));
}

#[test]
fn each_author_is_parsed_once_and_only_for_signatures() {
    let keys = PublicKeys::at_most(8);
    for created_at in 0..5 {
        keys.verify(&note(1, created_at), VerifyLevel::Id).unwrap();
    }
    assert_eq!((keys.parsed(), keys.known()), (0, 0));
    for created_at in 0..5 {
        for author in [1, 2] {
            keys.verify(&note(author, created_at), VerifyLevel::Full).unwrap();
        }
    }
    assert_eq!((keys.parsed(), keys.known()), (2, 8));
}

#[test]
fn a_key_without_a_valid_signature_never_enters() {
    let keys = PublicKeys::at_most(4);
    let valid = note(1, 1);
    for author in 2..50 {
        let forged = Event { sig: valid.sig, ..note(author, 1) };
        for _ in 0..2 {
            assert_eq!(keys.verify(&forged, VerifyLevel::Full), Err(VerifyError::Signature));
        }
    }
    assert_eq!((keys.parsed(), keys.known()), (2 * 48, 0));
}

/// One set, so that all keys meet in it.
#[test]
fn authors_who_come_again_keep_their_places_in_a_flood_of_new_ones() {
    let keys = PublicKeys::at_most(4);
    let regulars = [1, 2, 3].map(|author| note(author, 1));
    for _ in 0..4 {
        for regular in &regulars {
            is_known(&keys, regular);
        }
    }
    for author in 100..200 {
        assert!(!is_known(&keys, &note(author, 1)), "every one of the flood is new");
        if author % 20 == 0 {
            assert!(regulars.iter().all(|regular| is_known(&keys, regular)), "after {author}");
        }
    }
    assert!(regulars.iter().all(|regular| is_known(&keys, regular)));
    // Who comes again after the flood is known again from the second time on.
    assert!(!is_known(&keys, &note(100, 1)));
    assert!(is_known(&keys, &note(100, 2)));
}

#[test]
fn a_flood_of_new_keys_takes_no_more_memory_than_the_bound() {
    const KEYS: usize = 64;
    let mut keys = None;
    let flood: Vec<_> = (0..40 * 64).map(|author| note(author, 1)).collect();
    let measured = allocation_counter::measure(|| {
        let table = keys.insert(PublicKeys::at_most(KEYS));
        for event in &flood {
            table.verify(event, VerifyLevel::Full).unwrap();
        }
    });
    let kept = usize::try_from(measured.bytes_current).unwrap();
    assert!(kept <= 150 * KEYS, "{kept} bytes for {KEYS} keys");
    let again = allocation_counter::measure(|| {
        for event in &flood {
            keys.as_ref().unwrap().verify(event, VerifyLevel::Full).unwrap();
        }
    });
    assert_eq!(again.bytes_current, 0);
}

#[test]
fn threads_share_the_keys() {
    let keys = PublicKeys::at_most(16);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let keys = &keys;
            scope.spawn(move || {
                for n in 0..50 {
                    keys.verify(&note(n % 5, i64::from(n + thread)), VerifyLevel::Full).unwrap();
                }
            });
        }
    });
    assert_eq!(keys.known() + keys.parsed(), 200);
}
