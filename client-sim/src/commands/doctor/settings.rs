//! The settings of known relays, by the names of their public documentation: strfry.conf of
//! hoytech/strfry, config.toml of scsibug/nostr-rs-relay, khatru's Go API, `RelayBuilder` of
//! nostr-relay-builder, the YAML of nostr-relay (PyPI), and relay-sim's flags.

use super::answers::{Demand, Info};

/// The software of a relay.
#[derive(Debug)]
pub(super) struct Software {
    pub(super) name: &'static str,
    /// Parts of its name in NIP-11, in lower case.
    marks: &'static [&'static str],
    /// The settings that meet a demand.
    settings: &'static [(&'static [Demand], &'static str)],
}

const ALL: [Software; 6] = [
    Software {
        name: "strfry",
        marks: &["strfry"],
        settings: &[
            (&[Demand::EventBytes], "events.maxEventSize and relay.maxWebsocketPayloadSize"),
            (&[Demand::EventTags], "events.maxNumTags"),
            (&[Demand::TagValueBytes], "events.maxTagValSize"),
            (
                &[Demand::Age],
                "events.rejectEventsOlderThanSeconds and events.rejectEphemeralEventsOlderThanSeconds",
            ),
            (&[Demand::Future], "events.rejectEventsNewerThanSeconds"),
            (
                &[Demand::Requests],
                "relay.maxWebsocketPayloadSize, relay.maxReqFilterSize and relay.filterValidation",
            ),
            (&[Demand::Subscriptions], "relay.maxSubsPerConnection"),
            (&[Demand::StoredEvents], "relay.maxFilterLimit"),
            (&[Demand::Read], "relay.auth.restrictedReadKinds = \"\""),
            (&[Demand::Write], "relay.writePolicy.plugin"),
            (&[Demand::Auth], "relay.auth.serviceUrl, which is the URL that clients use"),
        ],
    },
    Software {
        name: "nostr-rs-relay",
        marks: &["nostr-rs-relay"],
        settings: &[
            (
                &[Demand::EventBytes],
                "limits.max_event_bytes, limits.max_ws_message_bytes and limits.max_ws_frame_bytes",
            ),
            (&[Demand::Requests], "limits.max_ws_message_bytes and limits.max_ws_frame_bytes"),
            (&[Demand::Future], "options.reject_future_seconds"),
            (&[Demand::Rate], "limits.messages_per_sec and limits.subscriptions_per_min"),
            (&[Demand::Read, Demand::Auth], "authorization.nip42_auth and authorization.nip42_dms"),
            (&[Demand::Write], "authorization.pubkey_whitelist and limits.event_kind_allowlist"),
        ],
    },
    Software {
        name: "khatru",
        marks: &["khatru"],
        settings: &[
            (&[Demand::EventBytes, Demand::Requests], "Relay.MaxMessageSize"),
            (&[Demand::EventTags], "policies.PreventTooManyIndexableTags"),
            (&[Demand::TagValueBytes], "policies.PreventLargeTags"),
            (&[Demand::Age], "policies.PreventTimestampsInThePast"),
            (&[Demand::Future], "policies.PreventTimestampsInTheFuture"),
            (&[Demand::StoredEvents], "MaxLimit of its event store"),
            (
                &[Demand::Rate, Demand::Connections],
                "policies.EventIPRateLimiter and policies.ConnectionRateLimiter",
            ),
            (&[Demand::Read, Demand::Write], "Relay.RejectFilter and Relay.RejectEvent"),
            (&[Demand::Auth], "Relay.ServiceURL, which is the URL that clients use"),
        ],
    },
    Software {
        name: "LocalRelay",
        marks: &["nostr-relay-builder", "rust-nostr"],
        settings: &[
            (&[Demand::Rate], "RateLimit.notes_per_minute (RelayBuilder::rate_limit)"),
            (&[Demand::Subscriptions], "RateLimit.max_reqs (RelayBuilder::rate_limit)"),
            (&[Demand::Connections], "RelayBuilder::max_connections"),
            (
                &[Demand::StoredEvents],
                "RelayBuilder::max_filter_limit and RelayBuilder::default_filter_limit",
            ),
            (&[Demand::UnlimitedEvents], "RelayBuilder::default_filter_limit"),
            (&[Demand::Read, Demand::Write, Demand::Auth], "RelayBuilder::nip42"),
        ],
    },
    Software {
        name: "nostr-relay (PyPI)",
        marks: &["code.pobblelabs.org"],
        settings: &[
            (&[Demand::EventBytes, Demand::EventTags, Demand::Age, Demand::Future], "storage.validators"),
            (&[Demand::Subscriptions], "subscription_limit"),
            (&[Demand::StoredEvents], "max_limit"),
            (&[Demand::Read, Demand::Write, Demand::Auth], "authentication.enabled"),
        ],
    },
    Software {
        name: "relay-sim",
        marks: &["relay-sim"],
        settings: &[
            (&[Demand::EventBytes], "--max-message-bytes"),
            (&[Demand::Subscriptions], "--max-subscriptions"),
            (&[Demand::StoredEvents], "--max-limit"),
            (&[Demand::UnlimitedEvents], "--default-limit"),
            (&[Demand::Read, Demand::Write, Demand::Auth], "--auth"),
        ],
    },
];

/// The software that NIP-11 names; `None` if it is another or not named.
pub(super) fn software(info: Option<&Info>) -> Option<&'static Software> {
    let info = info?;
    let text = [&info.software, &info.name].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    let text = text.to_lowercase();
    ALL.iter().find(|software| software.marks.iter().any(|mark| text.contains(mark)))
}

/// The settings that meet a demand, of the relay's software or else of all known ones.
pub(super) fn settings(info: Option<&Info>, demand: Demand) -> Option<String> {
    let own = software(info);
    let all = ALL.iter().filter(|one| own.is_none_or(|own| own.name == one.name));
    let met = all.filter_map(|one| {
        let (_, setting) = one.settings.iter().find(|(demands, _)| demands.contains(&demand))?;
        Some(format!("{}: {setting}", one.name))
    });
    let met: Vec<String> = met.collect();
    (!met.is_empty()).then(|| format!("settings for {}: {}", demand.words(), met.join("; ")))
}
