//! Decisions on header values.

use proptest::prelude::*;
use tungstenite_deflate::{
    DeflateParams, Direction,
    negotiate::{accept, check_answer, offer},
};

use crate::fuzz_checks;

/// The server's answer, its own direction and the client's.
type Granted<'a> = (&'a str, Direction, Direction);

/// The client's direction, and the server's.
type Directions = (Direction, Direction);

const KEPT: Direction = Direction::DEFAULT;
const DROPPED: Direction = Direction::NO_TAKEOVER;

const NO_TAKEOVER: DeflateParams =
    DeflateParams { to_client: DROPPED, to_server: DROPPED, ..DeflateParams::DEFAULT };
const SHARED: DeflateParams = DeflateParams { shared: true, to_client: DROPPED, ..DeflateParams::DEFAULT };

fn bits(direction: Direction, window_bits: u8) -> Direction {
    Direction { window_bits, ..direction }
}

/// Checks the server's answer to `permessage-deflate` with these parameters, and its own (its direction,
/// the client's); `None`: declined.
fn check_accept(enabled: &[DeflateParams], offered: &str, expected: Option<Granted<'_>>) {
    let accepted = accept(&format!("permessage-deflate{offered}"), enabled).unwrap();
    let found = accepted.as_ref().map(|(answer, agreed)| {
        let parameters = answer.strip_prefix("permessage-deflate").unwrap();
        (parameters, agreed.to_client, agreed.to_server)
    });
    assert_eq!(found, expected, "offer {offered:?}");
}

#[test]
fn the_server_honours_deflate_offers() {
    let both = [DeflateParams::DEFAULT, NO_TAKEOVER];
    let neither = "; server_no_context_takeover; client_no_context_takeover";
    let cases: [(&str, Option<Granted<'_>>); 22] = [
        // The offers of nostr-tools, NDK and Chromium, of go-nostr, and of strfry's clients.
        ("; client_max_window_bits", Some(("", KEPT, KEPT))),
        ("", Some(("", KEPT, KEPT))),
        ("; client_no_context_takeover; server_no_context_takeover", Some((neither, DROPPED, DROPPED))),
        ("; server_no_context_takeover", Some(("; server_no_context_takeover", DROPPED, KEPT))),
        ("; client_no_context_takeover", Some(("; client_no_context_takeover", KEPT, DROPPED))),
        ("; server_max_window_bits=10", Some(("; server_max_window_bits=10", bits(KEPT, 10), KEPT))),
        (";client_max_window_bits=\"10\"", Some(("; client_max_window_bits=10", KEPT, bits(KEPT, 10)))),
        ("; client_max_window_bits = \"1\\0\"", Some(("; client_max_window_bits=10", KEPT, bits(KEPT, 10)))),
        // A client may compress with 8 bits, which 9 can read; the server cannot.
        ("; client_max_window_bits=8", Some(("; client_max_window_bits=8", KEPT, bits(KEPT, 9)))),
        ("; server_max_window_bits=8", None),
        ("; server_max_window_bits=8, permessage-deflate", Some(("", KEPT, KEPT))),
        ("; client_max_window_bits=15", Some(("", KEPT, KEPT))),
        // Malformed parameters decline their offer.
        ("; client_max_window_bits=16", None),
        ("; client_max_window_bits=7", None),
        ("; client_max_window_bits=010", None),
        ("; client_max_window_bits=+9", None),
        ("; server_max_window_bits", None),
        ("; server_no_context_takeover=1", None),
        ("; server_no_context_takeover; server_no_context_takeover", None),
        ("; client_max_window_bits; client_max_window_bits=9", None),
        ("; unknown_parameter", None),
        ("; unknown_parameter, permessage-deflate", Some(("", KEPT, KEPT))),
    ];
    for (offered, expected) in cases {
        check_accept(&both, offered, expected);
        check_accept(&[], offered, None);
    }
    assert_eq!(accept("permessage-bzip2, x-webkit-deflate-frame; a=b", &both).unwrap(), None);
    let second = accept(" , permessage-bzip2;level=9 ,, permessage-deflate , ", &both).unwrap();
    assert_eq!(second.unwrap(), ("permessage-deflate".to_owned(), DeflateParams::DEFAULT));
}

#[test]
fn the_server_can_insist_on_no_takeover_and_on_smaller_windows() {
    let neither = "; server_no_context_takeover; client_no_context_takeover";
    check_accept(&[NO_TAKEOVER], "; client_max_window_bits", Some((neither, DROPPED, DROPPED)));
    let eleven = bits(KEPT, 11);
    let small = [DeflateParams { to_client: eleven, to_server: eleven, ..DeflateParams::DEFAULT }];
    let granted = Some(("; client_max_window_bits=11", eleven, eleven));
    check_accept(&small, "; client_max_window_bits", granted);
    // A client that does not offer the parameter keeps its window (RFC 7692 §7.1.2.2).
    check_accept(&small, "", Some(("", eleven, KEPT)));
}

#[test]
fn a_server_that_shares_compressed_messages_promises_no_takeover_of_its_own() {
    let fresh = "; server_no_context_takeover";
    check_accept(&[SHARED], "; client_max_window_bits", Some((fresh, DROPPED, KEPT)));
    assert!(accept("permessage-deflate", &[SHARED]).unwrap().unwrap().1.shared);

    // A client cannot ask for it: its offer is the default one, and the answer decides.
    assert_eq!(offer(&SHARED), offer(&DeflateParams::DEFAULT));
    for (parameters, takeover) in [(fresh, false), ("", true)] {
        let answer = format!("permessage-deflate{parameters}");
        let agreed = check_answer(&answer, Some(&SHARED)).unwrap().unwrap();
        assert_eq!(agreed.to_client.takeover, takeover);
    }
}

#[test]
fn a_header_outside_the_grammar_is_refused() {
    for header in [
        "permessage-deflate;",
        "permessage-deflate; =1",
        "permessage-deflate; client_max_window_bits=",
        "permessage-deflate; client_max_window_bits=\"10",
        "permessage-deflate; client_max_window_bits=\"\"",
        "permessage-deflate; client_max_window_bits=\"1 0\"",
        "permessage-deflate client_max_window_bits",
        "permessage-deflate; client_max_window_bits=\"1\\",
        "perméssage",
        ";",
    ] {
        for enabled in [&[DeflateParams::DEFAULT][..], &[]] {
            let error = accept(header, enabled).unwrap_err().to_string();
            assert!(error.contains("malformed"), "{header:?}: {error}");
        }
    }
}

/// Checks the client's parameters after an answer (its direction, the server's); `Err`: a failed
/// handshake.
fn check_client(offered: Option<&DeflateParams>, answer: &str, expected: Result<Option<Directions>, &str>) {
    let found = check_answer(answer, offered).map_err(|error| error.to_string());
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            let found = found.map(|agreed| (agreed.to_server, agreed.to_client));
            assert_eq!(found, expected, "answer {answer:?}");
        }
        (Err(found), Err(expected)) => assert!(found.contains(expected), "answer {answer:?}: {found}"),
        (found, expected) => panic!("answer {answer:?}: expected {expected:?}, found {found:?}"),
    }
}

#[test]
fn the_client_checks_the_answer() {
    let cases: [(&str, Result<Option<Directions>, &str>); 16] = [
        ("permessage-deflate", Ok(Some((KEPT, KEPT)))),
        ("", Ok(None)),
        ("permessage-deflate; server_no_context_takeover", Ok(Some((KEPT, DROPPED)))),
        ("permessage-deflate; client_no_context_takeover", Ok(Some((DROPPED, KEPT)))),
        ("permessage-deflate; client_max_window_bits=10", Ok(Some((bits(KEPT, 10), KEPT)))),
        ("permessage-deflate; server_max_window_bits=\"10\"", Ok(Some((KEPT, bits(KEPT, 10))))),
        ("permessage-deflate; server_max_window_bits=8", Ok(Some((KEPT, bits(KEPT, 9))))),
        // zlib cannot compress with it, so nothing is.
        (
            "permessage-deflate; client_max_window_bits=8",
            Ok(Some((Direction { min_bytes: usize::MAX, ..bits(KEPT, 9) }, KEPT))),
        ),
        ("permessage-deflate; client_max_window_bits", Err("must be 8 to 15")),
        ("permessage-deflate; client_max_window_bits=16", Err("must be 8 to 15")),
        ("permessage-deflate; server_max_window_bits", Err("must be 8 to 15")),
        ("permessage-deflate; unknown", Err("unknown parameter")),
        ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", Err("twice")),
        ("permessage-deflate, permessage-deflate", Err("more than one")),
        ("permessage-bzip2", Err("not offered")),
        ("permessage-deflate;", Err("malformed")),
    ];
    for (answer, expected) in cases {
        check_client(Some(&DeflateParams::DEFAULT), answer, expected);
    }

    check_client(Some(&NO_TAKEOVER), "permessage-deflate", Err("server_no_context_takeover"));
    check_client(
        Some(&NO_TAKEOVER),
        "permessage-deflate; server_no_context_takeover",
        Ok(Some((DROPPED, DROPPED))),
    );

    check_client(None, "permessage-deflate", Err("not offered"));
    check_client(None, "", Ok(None));

    let ten = bits(KEPT, 10);
    let small = DeflateParams { to_client: ten, to_server: ten, ..DeflateParams::DEFAULT };
    check_client(Some(&small), "permessage-deflate", Err("server_max_window_bits=10"));
    check_client(
        Some(&small),
        "permessage-deflate; server_max_window_bits=9; client_max_window_bits=12",
        Ok(Some((bits(KEPT, 10), bits(KEPT, 9)))),
    );
}

#[test]
fn what_the_client_offers_the_server_grants() {
    let directions = || (9..=15).flat_map(|window_bits| [KEPT, DROPPED].map(|kind| bits(kind, window_bits)));
    for (to_client, to_server) in directions().flat_map(|down| directions().map(move |up| (down, up))) {
        let params = DeflateParams { to_client, to_server, ..DeflateParams::DEFAULT };
        let request = offer(&params);
        let (answer, server) = accept(&request, &[DeflateParams::DEFAULT, NO_TAKEOVER]).unwrap().unwrap();
        let client = check_answer(&answer, Some(&params)).unwrap().unwrap();
        assert_eq!(client, server, "{request:?}");
        assert_eq!(client, params, "{request:?}");
    }
    assert_eq!(offer(&DeflateParams::DEFAULT), "permessage-deflate; client_max_window_bits");
    assert_eq!(
        offer(&NO_TAKEOVER),
        "permessage-deflate; client_max_window_bits; client_no_context_takeover; server_no_context_takeover"
    );
}

proptest! {
    #[test]
    fn any_header_passes_the_fuzzers_checks(
        header in "(permessage-deflate|[a-z]{1,3}|[;,= \"\\\\]|client_max_window_bits|server_max_window_bits|\
                   client_no_context_takeover|server_no_context_takeover|1[0-6]|[7-9]|[ -~é]){0,12}",
    ) {
        fuzz_checks::headers(header.as_bytes());
    }
}
