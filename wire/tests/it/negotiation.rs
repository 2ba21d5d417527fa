//! Header values in, decisions out.

use codecs::Format;
use proptest::prelude::*;
use wire::{
    Agreement, Compression, DeflateParams, Direction, Offer, Support, Token,
    negotiate::{self, Refusal},
};

use crate::common::{offer, support};

fn chosen(offered: &str, support: &Support) -> Option<String> {
    negotiate::accept(Some(offered), None, support).unwrap().token
}

#[test]
fn the_first_enabled_token_of_the_client_wins() {
    let all = support(&["none", "zstd"]);
    let without_zstd = support(&["none"]);
    let cases: [(&str, &Support, Option<&str>); 15] = [
        ("nostr.json+zstd-stream, nostr.json", &all, Some("nostr.json")),
        ("nostr.json+zstd-stream", &support(&["zstd-stream"]), Some("nostr.json+zstd-stream")),
        ("nostr.json+zstd", &support(&["zstd-stream"]), None),
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
fn every_token_is_accepted_and_spoken_by_both_ends() {
    for format in Format::all() {
        for name in ["none", "zstd", "zstd-stream"] {
            let offer = Offer { batched: false, formats: vec![format], compression: name.parse().unwrap() };
            let request = negotiate::request(&offer);
            let relay = negotiate::accept(Some(&request.protocols), None, &support(&["zstd", "zstd-stream"]))
                .unwrap();
            let client = negotiate::check_answer(&offer, relay.token.as_deref(), None).unwrap();
            assert_eq!(client, relay, "{format} {name}");
            assert_eq!((client.format, client.compression.name()), (format, name));
        }
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
    assert_eq!(negotiate::request(&zstd).protocols, "nostr.json");
    assert_eq!(negotiate::request(&offer("zstd")).protocols, "nostr.json+zstd, nostr.json");
}

#[test]
fn no_offer_and_no_match_mean_json_unless_the_relay_is_strict() {
    let mut support = support(&[]);
    for strict in [false, true] {
        support.strict = strict;
        let agreement = negotiate::accept(None, None, &support).unwrap();
        assert_eq!((agreement.format, agreement.token), (Format::JSON, None));
    }
    let refusal = negotiate::accept(Some("chat"), None, &support).unwrap_err();
    let Refusal::NoToken { enabled } = refusal else { panic!("{refusal:?}") };
    assert!(enabled.contains(&"nostr.json".to_owned()), "{enabled:?}");
    support.strict = false;
    let agreement = negotiate::accept(Some("chat"), None, &support).unwrap();
    assert_eq!((agreement.format, agreement.token), (Format::JSON, None));
}

#[test]
fn only_enabled_formats_are_accepted_and_json_always_is() {
    let only_json = Support { formats: vec![], compressions: vec![], batched: false, strict: false };
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
    assert_eq!(agreement.compression.name(), "zstd");
    assert_eq!(agreement.extensions, None);
}

/// The relay's answer, its own direction and the client's.
type Granted<'a> = (&'a str, Direction, Direction);

/// What the client sends with and what the relay does.
type Directions = (Direction, Direction);

const KEPT: Direction = Direction::STANDING;
const DROPPED: Direction = Direction::NO_TAKEOVER;

fn deflate(agreement: &Agreement) -> Option<DeflateParams> {
    match agreement.compression {
        Compression::Deflate(params) => Some(params),
        Compression::None | Compression::Zstd(_) => None,
    }
}

fn bits(direction: Direction, window_bits: u8) -> Direction {
    Direction { window_bits, ..direction }
}

/// What the relay answers and does (relay's direction, client's direction); `None`: declined.
fn check_accept(support: &Support, header: &str, expected: Option<Granted<'_>>) {
    let agreement = negotiate::accept(None, Some(header), support).unwrap();
    let found = agreement.extensions.as_deref().zip(deflate(&agreement));
    let found = found.map(|(answer, agreed)| (answer, agreed.to_client, agreed.to_relay));
    assert_eq!(found, expected, "offer {header:?}");
    assert_eq!(agreement.compression == Compression::None, expected.is_none(), "offer {header:?}");
}

#[test]
fn the_relay_honours_deflate_offers() {
    let both = support(&["deflate", "deflate-no-takeover"]);
    let cases: [(&str, Option<Granted<'_>>); 24] = [
        // What nostr-tools, NDK and Chromium send, what go-nostr sends, what strfry's clients send.
        ("permessage-deflate; client_max_window_bits", Some(("permessage-deflate", KEPT, KEPT))),
        ("permessage-deflate", Some(("permessage-deflate", KEPT, KEPT))),
        (
            "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
            Some((
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
                DROPPED,
                DROPPED,
            )),
        ),
        (
            "permessage-deflate; server_no_context_takeover",
            Some(("permessage-deflate; server_no_context_takeover", DROPPED, KEPT)),
        ),
        (
            "permessage-deflate; client_no_context_takeover",
            Some(("permessage-deflate; client_no_context_takeover", KEPT, DROPPED)),
        ),
        (
            "permessage-deflate; server_max_window_bits=10",
            Some(("permessage-deflate; server_max_window_bits=10", bits(KEPT, 10), KEPT)),
        ),
        (
            "permessage-deflate;client_max_window_bits=\"10\"",
            Some(("permessage-deflate; client_max_window_bits=10", KEPT, bits(KEPT, 10))),
        ),
        (
            "permessage-deflate; client_max_window_bits = \"1\\0\"",
            Some(("permessage-deflate; client_max_window_bits=10", KEPT, bits(KEPT, 10))),
        ),
        // A client may compress with 8 bits, which 9 can read; the relay cannot.
        (
            "permessage-deflate; client_max_window_bits=8",
            Some(("permessage-deflate; client_max_window_bits=8", KEPT, bits(KEPT, 9))),
        ),
        ("permessage-deflate; server_max_window_bits=8", None),
        (
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            Some(("permessage-deflate", KEPT, KEPT)),
        ),
        ("permessage-deflate; client_max_window_bits=15", Some(("permessage-deflate", KEPT, KEPT))),
        // Malformed parameters decline their offer.
        ("permessage-deflate; client_max_window_bits=16", None),
        ("permessage-deflate; client_max_window_bits=7", None),
        ("permessage-deflate; client_max_window_bits=010", None),
        ("permessage-deflate; client_max_window_bits=+9", None),
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; server_no_context_takeover=1", None),
        ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits=9", None),
        ("permessage-deflate; unknown_parameter", None),
        (
            "permessage-deflate; unknown_parameter, permessage-deflate",
            Some(("permessage-deflate", KEPT, KEPT)),
        ),
        ("permessage-bzip2, x-webkit-deflate-frame; a=b", None),
        (" , permessage-bzip2;level=9 ,, permessage-deflate , ", Some(("permessage-deflate", KEPT, KEPT))),
    ];
    for (header, expected) in cases {
        check_accept(&both, header, expected);
        check_accept(&support(&["none", "zstd"]), header, None);
    }
}

#[test]
fn the_relay_can_insist_on_no_takeover_and_on_smaller_windows() {
    let answer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    check_accept(
        &support(&["deflate-no-takeover"]),
        "permessage-deflate; client_max_window_bits",
        Some((answer, DROPPED, DROPPED)),
    );
    let eleven = bits(KEPT, 11);
    let params = DeflateParams { to_client: eleven, to_relay: eleven, ..DeflateParams::STANDING };
    let small = Support { compressions: vec![Compression::Deflate(params)], ..support(&[]) };
    check_accept(
        &small,
        "permessage-deflate; client_max_window_bits",
        Some(("permessage-deflate; client_max_window_bits=11", bits(KEPT, 11), bits(KEPT, 11))),
    );
    // Without the client's leave its window cannot be limited (RFC 7692 §7.1.2.2).
    check_accept(&small, "permessage-deflate", Some(("permessage-deflate", bits(KEPT, 11), KEPT)));
}

#[test]
fn a_relay_that_shares_compressed_events_promises_no_takeover_of_its_own() {
    let answer = "permessage-deflate; server_no_context_takeover";
    let shared = support(&["deflate-shared"]);
    check_accept(&shared, "permessage-deflate; client_max_window_bits", Some((answer, DROPPED, KEPT)));
    let agreement = negotiate::accept(None, Some("permessage-deflate"), &shared).unwrap();
    assert_eq!(agreement.compression.name(), "deflate-shared");

    // A client cannot ask for it: it offers what everybody offers, and tells from the answer what it got.
    let shared = offer("deflate-shared");
    assert_eq!(negotiate::request(&shared), negotiate::request(&offer("deflate")));
    for (answer, name) in [(answer, "deflate-shared"), ("permessage-deflate", "deflate")] {
        let agreement = negotiate::check_answer(&shared, None, Some(answer)).unwrap();
        assert_eq!(agreement.compression.name(), name);
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
        for support in [support(&["deflate"]), support(&[])] {
            let refusal = negotiate::accept(None, Some(header), &support).unwrap_err();
            assert!(matches!(refusal, Refusal::Malformed(_)), "{header:?}: {refusal:?}");
        }
    }
}

/// What the client does after an answer (client's direction, relay's direction); `Err`: a failed handshake.
fn check_client(offer: &Offer, answer: Option<&str>, expected: Result<Option<Directions>, &str>) {
    let found = negotiate::check_answer(offer, Some("nostr.json"), answer);
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            let found = deflate(&found).map(|agreed| (agreed.to_relay, agreed.to_client));
            assert_eq!(found, expected, "answer {answer:?}");
        }
        (Err(found), Err(expected)) => assert!(found.contains(expected), "answer {answer:?}: {found}"),
        (found, expected) => panic!("answer {answer:?}: expected {expected:?}, found {found:?}"),
    }
}

#[test]
fn the_client_checks_the_answer() {
    let takeover = offer("deflate");
    let cases: [(&str, Result<Option<Directions>, &str>); 16] = [
        ("permessage-deflate", Ok(Some((KEPT, KEPT)))),
        ("", Ok(None)),
        ("permessage-deflate; server_no_context_takeover", Ok(Some((KEPT, DROPPED)))),
        ("permessage-deflate; client_no_context_takeover", Ok(Some((DROPPED, KEPT)))),
        ("permessage-deflate; client_max_window_bits=10", Ok(Some((bits(KEPT, 10), KEPT)))),
        ("permessage-deflate; server_max_window_bits=\"10\"", Ok(Some((KEPT, bits(KEPT, 10))))),
        ("permessage-deflate; server_max_window_bits=8", Ok(Some((KEPT, bits(KEPT, 9))))),
        ("permessage-deflate; client_max_window_bits=8", Err("zlib cannot")),
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
        check_client(&takeover, Some(answer), expected);
    }
    check_client(&takeover, None, Ok(None));

    let fresh = offer("deflate-no-takeover");
    check_client(&fresh, Some("permessage-deflate"), Err("server_no_context_takeover"));
    check_client(
        &fresh,
        Some("permessage-deflate; server_no_context_takeover"),
        Ok(Some((DROPPED, DROPPED))),
    );

    for compression in ["none", "zstd"] {
        check_client(&offer(compression), Some("permessage-deflate"), Err("not offered"));
    }

    let ten = bits(KEPT, 10);
    let params = DeflateParams { to_client: ten, to_relay: ten, ..DeflateParams::STANDING };
    let small = Offer { batched: false, formats: vec![], compression: Compression::Deflate(params) };
    check_client(&small, Some("permessage-deflate"), Err("server_max_window_bits=10"));
    check_client(
        &small,
        Some("permessage-deflate; server_max_window_bits=9; client_max_window_bits=12"),
        Ok(Some((bits(KEPT, 10), bits(KEPT, 9)))),
    );
}

#[test]
fn what_the_client_offers_the_relay_grants() {
    let directions = || (9..=15).flat_map(|window_bits| [KEPT, DROPPED].map(|kind| bits(kind, window_bits)));
    for (to_client, to_relay) in directions().flat_map(|down| directions().map(move |up| (down, up))) {
        let params = DeflateParams { to_client, to_relay, ..DeflateParams::STANDING };
        let offer = Offer { batched: false, formats: vec![], compression: Compression::Deflate(params) };
        let request = negotiate::request(&offer);
        let support = support(&["deflate", "deflate-no-takeover"]);
        let relay = negotiate::accept(None, request.extensions.as_deref(), &support).unwrap();
        let client = negotiate::check_answer(&offer, None, relay.extensions.as_deref()).unwrap();
        assert_eq!(client, relay, "{request:?}");
        assert_eq!(client.compression, offer.compression, "{request:?}");
    }
    assert_eq!(
        negotiate::request(&offer("deflate")).extensions.unwrap(),
        "permessage-deflate; client_max_window_bits"
    );
    assert_eq!(
        negotiate::request(&offer("deflate-no-takeover")).extensions.unwrap(),
        "permessage-deflate; client_max_window_bits; client_no_context_takeover; server_no_context_takeover"
    );
}

proptest! {
    #[test]
    fn no_header_panics_and_every_grant_was_asked_for(
        header in "(permessage-deflate|[a-z]{1,3}|[;,= \"\\\\]|client_max_window_bits|server_max_window_bits|\
                   client_no_context_takeover|server_no_context_takeover|1[0-6]|[7-9]|[ -~é]){0,12}",
    ) {
        let support = support(&["deflate", "deflate-no-takeover"]);
        let _: Result<_, _> = negotiate::check_answer(&offer("deflate"), Some(&header), Some(&header));
        if let Ok(agreement) = negotiate::accept(Some(&header), Some(&header), &support)
            && let Some(agreed) = deflate(&agreement)
        {
            prop_assert!(header.contains("permessage-deflate"));
            prop_assert!((9..=15).contains(&agreed.to_client.window_bits));
            prop_assert!((9..=15).contains(&agreed.to_relay.window_bits));
            prop_assert!(agreement.extensions.is_some());
        }
    }
}

#[test]
fn a_token_that_was_not_offered_fails_the_handshake() {
    for answer in ["nostr.json+zstd", "chat", "", "Nostr.json", "nostr.json, nostr.json"] {
        let error = negotiate::check_answer(&offer("none"), Some(answer), None).unwrap_err();
        assert!(error.contains("not offered"), "{answer:?}: {error}");
    }
}

#[test]
fn a_relay_without_subprotocols_is_spoken_to_in_plain_json() {
    let agreement = negotiate::check_answer(&offer("zstd"), None, None).unwrap();
    assert_eq!(
        (agreement.format, agreement.compression, agreement.token),
        (Format::JSON, Compression::None, None)
    );
}

#[test]
fn batches_are_agreed_by_a_part_of_the_token_in_every_format_and_under_every_layer() {
    let names = ["none", "zstd", "zstd-stream", "zstd-dict"];
    let mut relay_support = support(&names);
    for enabled in [true, false] {
        relay_support.batched = enabled;
        for format in Format::all() {
            for name in names {
                let offer =
                    Offer { batched: true, formats: vec![format], compression: name.parse().unwrap() };
                let request = negotiate::request(&offer);
                let first = request.protocols.split(", ").next().unwrap();
                let expected = format!("{}.batched", format.spec().token);
                assert!(first == expected || first.starts_with(&format!("{expected}+")), "{first}");
                let relay = negotiate::accept(Some(&request.protocols), None, &relay_support).unwrap();
                let client = negotiate::check_answer(&offer, relay.token.as_deref(), None).unwrap();
                assert_eq!(client, relay);
                assert_eq!(relay.batched, enabled, "{first}");
                assert_eq!(relay.format, if enabled { format } else { Format::JSON });
            }
        }
    }
    for wrong in
        ["nostr.json.batched.batched", "nostr.batched", "nostr.json+zstd.batched", "nostr.json.Batched"]
    {
        assert_eq!(chosen(wrong, &Support { batched: true, ..support(&names) }), None, "{wrong}");
    }
}
