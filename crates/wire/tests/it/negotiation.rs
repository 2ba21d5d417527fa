//! Decisions on header values.

use codecs::Format;
use proptest::prelude::*;
use wire::{Compression, Offer, Support, Token, negotiate};

use crate::common::{offer, support};

fn chosen(offered: &str, support: &Support) -> Option<String> {
    negotiate::accept(Some(offered), None, support).unwrap().token
}

#[test]
fn the_first_enabled_token_of_the_client_wins() {
    let all = support(&["none", "zstd"]);
    let without_zstd = support(&["none"]);
    let cases: [(&str, &Support, Option<&str>); 17] = [
        ("nostr.json+zstd-stream, nostr.json", &all, Some("nostr.json")),
        ("nostr.json+zstd-stream", &support(&["zstd-stream"]), Some("nostr.json+zstd-stream")),
        ("nostr.json+zstd", &support(&["zstd-stream"]), None),
        ("nostr.json+zstd-shared", &all, None),
        ("nostr.json+zstd-shared", &support(&["zstd-shared"]), Some("nostr.json+zstd-shared")),
        ("nostr.json", &all, Some("nostr.json")),
        ("nostr.json+zstd, nostr.json", &all, Some("nostr.json+zstd")),
        ("nostr.json, nostr.json+zstd", &all, Some("nostr.json")),
        ("nostr.json+zstd, nostr.json", &without_zstd, Some("nostr.json")),
        ("nostr.json+zstd", &without_zstd, None),
        ("chat, graphql-ws", &all, None),
        ("chat,nostr.json", &all, Some("nostr.json")),
        ("nostr.json, nostr.json", &all, Some("nostr.json")),
        (" \t nostr.json\t,", &all, Some("nostr.json")),
        ("Nostr.JSON", &all, None),
        ("nostr.json+zstd+zstd, nostr json, nostr/json, +zstd, \u{fffd}", &all, None),
        ("", &all, None),
    ];
    for (offered, support, expected) in cases {
        assert_eq!(chosen(offered, support).as_deref(), expected, "{offered:?}");
    }
}

#[test]
fn an_offer_ends_with_plain_json_and_names_nothing_twice() {
    let formats: Vec<_> = Format::all().chain(Format::all()).collect();
    for name in Compression::NAMES {
        let tokens =
            Offer { batched: false, formats: formats.clone(), compression: name.parse().unwrap() }.tokens();
        assert!(tokens.contains(&Token::JSON), "{name}");
        for (i, token) in tokens.iter().enumerate() {
            assert!(!tokens[..i].contains(token), "{name}: {token} twice");
        }
    }
    let zstd = Offer { batched: false, formats: vec![], compression: "zstd".parse().unwrap() };
    assert_eq!(negotiate::request(std::slice::from_ref(&zstd)).protocols, "nostr.json");
    assert_eq!(negotiate::request(&[offer("zstd")]).protocols, "nostr.json+zstd, nostr.json");
}

#[test]
fn no_offer_and_no_match_mean_json() {
    for offered in [None, Some("chat")] {
        let agreement = negotiate::accept(offered, None, &support(&[])).unwrap();
        assert_eq!((agreement.format, agreement.token), (Format::JSON, None));
    }
}

#[test]
fn only_enabled_formats_are_accepted_and_json_always_is() {
    let only_json = Support::default();
    assert_eq!(only_json.tokens(), [Token::JSON]);
    for format in Format::all().filter(|&format| format != Format::JSON) {
        assert_eq!(chosen(format.spec().token, &only_json), None, "{format}");
    }
}

#[test]
fn compressions_are_never_stacked() {
    let support = support(&Compression::NAMES);
    let agreement =
        negotiate::accept(Some("nostr.json+zstd, nostr.json"), Some("permessage-deflate"), &support).unwrap();
    assert_eq!((agreement.compression.name(), agreement.extensions), ("zstd", None));
}

#[test]
fn an_extension_is_granted_only_to_who_asks_for_it_at_either_end() {
    for compressions in [&["none", "zstd"][..], &[]] {
        let agreement = negotiate::accept(None, Some("permessage-deflate"), &support(compressions)).unwrap();
        assert_eq!((agreement.compression, agreement.extensions), (Compression::None, None));
    }
    for compression in ["none", "zstd"] {
        let answer = Some("permessage-deflate");
        let error = negotiate::check_answer(&[offer(compression)], Some("nostr.json"), answer).unwrap_err();
        assert!(error.contains("not offered"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_header_panics_and_every_grant_was_asked_for(
        header in "(nostr\\.json|\\+zstd(-stream|-shared)?|permessage-deflate|[;,= \"]|client_max_window_bits|1[0-6]|[ -~é]){0,12}",
    ) {
        let support = support(&Compression::NAMES);
        let _: Result<_, _> = negotiate::check_answer(&[offer("deflate")], Some(&header), Some(&header));
        if let Ok(agreement) = negotiate::accept(Some(&header), Some(&header), &support) {
            prop_assert_eq!(agreement.extensions.is_some(), matches!(agreement.compression, Compression::Deflate(_)));
            prop_assert!(agreement.token.is_none_or(|token| header.contains(&token)));
        }
    }
}

#[test]
fn every_token_and_its_part_for_batches_is_agreed_by_both_ends_in_every_format_and_layer() {
    let names = ["none", "zstd", "zstd-stream", "zstd-shared", "zstd-dict"];
    let mut relay_support = support(&names);
    for (enabled, batched) in [(true, true), (true, false), (false, true)] {
        relay_support.batched = enabled;
        for format in Format::all() {
            for name in names {
                let offer = Offer { batched, formats: vec![format], compression: name.parse().unwrap() };
                let request = negotiate::request(std::slice::from_ref(&offer));
                let first = request.protocols.split(", ").next().unwrap();
                let expected = format!("{}{}", format.spec().token, if batched { ".batched" } else { "" });
                assert!(first == expected || first.starts_with(&format!("{expected}+")), "{first}");
                let relay = negotiate::accept(Some(&request.protocols), None, &relay_support).unwrap();
                let client =
                    negotiate::check_answer(std::slice::from_ref(&offer), relay.token.as_deref(), None)
                        .unwrap();
                assert_eq!(client, relay);
                assert_eq!(relay.batched, enabled && batched, "{first}");
                let is_refused = batched && !enabled;
                assert_eq!(relay.format, if is_refused { Format::JSON } else { format });
                assert!(is_refused || relay.compression.name() == name, "{first}");
            }
        }
    }
    for wrong in
        ["nostr.json.batched.batched", "nostr.batched", "nostr.json+zstd.batched", "nostr.json.Batched"]
    {
        assert_eq!(chosen(wrong, &Support { batched: true, ..support(&names) }), None, "{wrong}");
    }
}
