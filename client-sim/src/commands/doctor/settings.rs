//! The settings of known relays, by the names of their public documentation: strfry.conf of
//! hoytech/strfry, config.toml of scsibug/nostr-rs-relay, khatru's Go API, `RelayBuilder` of
//! nostr-relay-builder, the YAML of nostr-relay (PyPI), and relay-sim's flags.

use super::answers::{Demand, Info};

/// The software of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Software {
    Strfry,
    NostrRsRelay,
    Khatru,
    LocalRelay,
    NostrRelayPython,
    RelaySim,
}

impl Software {
    pub(super) const ALL: [Software; 6] = [
        Software::Strfry,
        Software::NostrRsRelay,
        Software::Khatru,
        Software::LocalRelay,
        Software::NostrRelayPython,
        Software::RelaySim,
    ];

    /// The software that NIP-11 names; `None` when it names another or none.
    pub(super) fn from_info(info: &Info) -> Option<Software> {
        let text = [&info.software, &info.name].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
        let text = text.to_lowercase();
        let marks = [
            ("strfry", Software::Strfry),
            ("nostr-rs-relay", Software::NostrRsRelay),
            ("khatru", Software::Khatru),
            ("nostr-relay-builder", Software::LocalRelay),
            ("rust-nostr", Software::LocalRelay),
            ("code.pobblelabs.org", Software::NostrRelayPython),
            ("relay-sim", Software::RelaySim),
        ];
        marks.into_iter().find(|(mark, _)| text.contains(mark)).map(|(_, software)| software)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Software::Strfry => "strfry",
            Software::NostrRsRelay => "nostr-rs-relay",
            Software::Khatru => "khatru",
            Software::LocalRelay => "LocalRelay",
            Software::NostrRelayPython => "nostr-relay (PyPI)",
            Software::RelaySim => "relay-sim",
        }
    }

    /// The setting that widens a bound, where one is known.
    pub(super) fn setting(self, demand: Demand) -> Option<&'static str> {
        match self {
            Software::Strfry => strfry(demand),
            Software::NostrRsRelay => nostr_rs_relay(demand),
            Software::Khatru => khatru(demand),
            Software::LocalRelay => local_relay(demand),
            Software::NostrRelayPython => nostr_relay_python(demand),
            Software::RelaySim => relay_sim(demand),
        }
    }
}

fn strfry(demand: Demand) -> Option<&'static str> {
    Some(match demand {
        Demand::EventBytes => "events.maxEventSize and relay.maxWebsocketPayloadSize",
        Demand::EventTags => "events.maxNumTags",
        Demand::TagValueBytes => "events.maxTagValSize",
        Demand::Age => "events.rejectEventsOlderThanSeconds and events.rejectEphemeralEventsOlderThanSeconds",
        Demand::FilterValues => "relay.maxWebsocketPayloadSize",
        Demand::Subscriptions => "relay.maxSubsPerConnection",
        Demand::StoredEvents => "relay.maxFilterLimit",
        Demand::Read => "relay.auth.restrictedReadKinds = \"\"",
        Demand::Write => "relay.writePolicy.plugin",
        Demand::Deflate => "relay.compression.enabled and relay.compression.slidingWindow",
        Demand::HexReferences | Demand::Rate | Demand::Challenge | Demand::UnlimitedEvents => return None,
    })
}

fn nostr_rs_relay(demand: Demand) -> Option<&'static str> {
    Some(match demand {
        Demand::EventBytes => {
            "limits.max_event_bytes, limits.max_ws_message_bytes and limits.max_ws_frame_bytes"
        }
        Demand::FilterValues => "limits.max_ws_message_bytes and limits.max_ws_frame_bytes",
        Demand::Rate => "limits.messages_per_sec and limits.subscriptions_per_min",
        Demand::Read => "authorization.nip42_dms",
        Demand::Write => "authorization.pubkey_whitelist and limits.event_kind_allowlist",
        _ => return None,
    })
}

fn khatru(demand: Demand) -> Option<&'static str> {
    Some(match demand {
        Demand::EventBytes | Demand::FilterValues => "Relay.MaxMessageSize",
        Demand::EventTags => "policies.PreventTooManyIndexableTags",
        Demand::TagValueBytes => "policies.PreventLargeTags",
        Demand::Age => "policies.PreventTimestampsInThePast",
        Demand::StoredEvents => "MaxLimit of its event store",
        Demand::Rate => "policies.EventIPRateLimiter and policies.ConnectionRateLimiter",
        Demand::Read | Demand::Write => "Relay.RejectFilter and Relay.RejectEvent",
        Demand::HexReferences
        | Demand::Subscriptions
        | Demand::Deflate
        | Demand::Challenge
        | Demand::UnlimitedEvents => return None,
    })
}

fn local_relay(demand: Demand) -> Option<&'static str> {
    Some(match demand {
        Demand::Rate => "RateLimit.notes_per_minute (RelayBuilder::rate_limit)",
        Demand::Subscriptions => "RateLimit.max_reqs (RelayBuilder::rate_limit)",
        Demand::StoredEvents => "RelayBuilder::max_filter_limit and RelayBuilder::default_filter_limit",
        Demand::UnlimitedEvents => "RelayBuilder::default_filter_limit",
        Demand::Read | Demand::Write | Demand::Challenge => "RelayBuilder::nip42",
        _ => return None,
    })
}

fn nostr_relay_python(demand: Demand) -> Option<&'static str> {
    Some(match demand {
        Demand::EventBytes | Demand::EventTags | Demand::Age => "storage.validators",
        Demand::Subscriptions => "subscription_limit",
        Demand::StoredEvents => "max_limit",
        Demand::Read | Demand::Write | Demand::Challenge => "authentication.enabled",
        _ => return None,
    })
}

fn relay_sim(demand: Demand) -> Option<&'static str> {
    Some(match demand {
        Demand::EventBytes => "--max-message-bytes",
        Demand::Subscriptions => "--max-subscriptions",
        Demand::StoredEvents => "--max-limit",
        Demand::UnlimitedEvents => "--default-limit",
        Demand::Write | Demand::Read | Demand::Challenge => "--auth",
        Demand::Deflate => "--compression",
        _ => return None,
    })
}
