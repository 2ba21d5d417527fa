//! The relay's document about itself: NIP-11, with one key of our own: `wire`.
//!
//! The document is a hint. What a connection speaks is decided in its handshake.

use codecs::{Format, Limits};
use serde_json::{Value, json};

use crate::config::Config;

/// The NIPs that are implemented; 42 only where `--auth` turns it on, and 40 where `--keep-expired`
/// does not turn it off.
const NIPS: [u16; 8] = [1, 9, 11, EXPIRATION, AUTH, 45, 70, 77];
const EXPIRATION: u16 = 40;
const AUTH: u16 = 42;
/// Not implemented.
const SEARCH: u16 = 50;

/// The relay information document, with claims that are wrong where it `lies`.
pub(crate) fn document(config: &Config, at_rest: Option<Format>, faults: &[String], lies: bool) -> String {
    let Limits { max_filters, max_subscription_chars, .. } = config.limits;
    let is_on = |nip: &u16| match *nip {
        AUTH => config.auth,
        EXPIRATION => !config.keep_expired,
        _ => true,
    };
    let nips: Vec<_> = NIPS.into_iter().filter(is_on).collect();
    let support = config.support();
    let batch = config.batch;
    let mut wire = support.described();
    wire["batching"] = json!({
        "hold_ms": batch.hold.as_millis(),
        "max_events": batch.events,
        "max_bytes": batch.bytes,
    });
    let description = match at_rest {
        None => "A Nostr relay for load tests. It keeps events in memory and forgets them when it stops.",
        Some(_) => "A Nostr relay for load tests. It keeps events on disk.",
    };
    let mut document = json!({
        "name": "relay-sim",
        "description": description,
        "software": env!("CARGO_PKG_NAME"),
        "version": env!("CARGO_PKG_VERSION"),
        "supported_nips": nips,
        "limitation": {
            "max_message_length": config.wire.max_message_bytes,
            "max_subscriptions": config.max_subscriptions,
            "max_filters": max_filters,
            "max_subid_length": max_subscription_chars,
            "max_limit": config.max_limit,
            "default_limit": config.default_limit,
            "auth_required": false,
            "payment_required": false,
            "restricted_writes": false,
        },
        "wire": wire,
    });
    if let Some(format) = at_rest {
        document["at_rest"] = json!(format.name());
    }
    if lies {
        lie(&mut document, config);
    }
    if !faults.is_empty() {
        document["faults"] = json!(faults);
    }
    document.to_string()
}

/// Claims what is not so.
fn lie(document: &mut Value, config: &Config) {
    let limitation = &mut document["limitation"];
    for limit in ["max_message_length", "max_subscriptions", "max_filters", "max_subid_length", "max_limit"] {
        limitation[limit] = json!(u32::MAX);
    }
    limitation["auth_required"] = json!(!config.auth);
    document["supported_nips"] = json!([1, 11, SEARCH]);
}

#[cfg(test)]
mod tests {
    use wire::Dictionary;

    use super::*;

    fn parsed(config: &Config) -> Value {
        serde_json::from_str(&document(config, None, &[], false)).unwrap()
    }

    #[test]
    fn lists_what_is_enabled_and_nothing_else() {
        let mut config = Config { formats: vec![Format::JSON], compressions: vec![], ..Config::default() };
        let plain = parsed(&config);
        assert_eq!(plain["wire"]["tokens"], serde_json::json!(["nostr.json", "nostr.json.batched"]));
        assert_eq!(plain["wire"]["extensions"], serde_json::json!([]));
        assert_eq!(plain["supported_nips"], serde_json::json!([1, 9, 11, 40, 45, 70, 77]));

        config.compressions = crate::config::known_compressions();
        config.auth = true;
        config.keep_expired = true;
        let all = parsed(&config);
        let dictionary = Dictionary::bundled("json").unwrap();
        let dict = format!("+zstd-dict2-{}", dictionary.id());
        let layers = ["", "+zstd", "+zstd-stream", "+zstd-shared", &dict];
        let tokens = layers.map(|layer| [format!("nostr.json{layer}"), format!("nostr.json.batched{layer}")]);
        let tokens = serde_json::json!(tokens.concat());
        assert_eq!(all["wire"]["tokens"], tokens);
        assert_eq!(all["wire"]["extensions"], serde_json::json!(["permessage-deflate"]));
        let listed = &all["wire"]["dictionaries"][dictionary.id()];
        assert_eq!(listed["bytes"], dictionary.bytes().len());
        assert_eq!(plain["wire"]["dictionaries"], serde_json::json!({}));
        assert_eq!(all["supported_nips"], serde_json::json!([1, 9, 11, 42, 45, 70, 77]));
    }

    #[test]
    fn states_the_limits_that_are_enforced() {
        let config = Config { max_limit: 7, max_subscriptions: 3, ..Config::default() };
        let limitation = &parsed(&config)["limitation"];
        assert_eq!(limitation["max_limit"], 7);
        assert_eq!(limitation["max_subscriptions"], 3);
        assert_eq!(limitation["max_message_length"], config.wire.max_message_bytes);
    }
}
