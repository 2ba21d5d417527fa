//! Reads and replaces the faults of a running relay over HTTP (`--control`).
//!
//! Only for tests on the same host: a client at another address and a page in a browser, which
//! states its Origin (RFC 6454 §7) or another host, are refused.

use std::{net::IpAddr, time::Instant};

use serde_json::json;
use wire::{Incoming, ServerConfig, WireError};

use crate::{
    fault::{Fault, UnknownFault},
    relay::Relay,
};

/// Where it is.
pub(crate) const TARGET: &str = "/faults";

/// Far more than a test needs.
const MAX_BODY_BYTES: usize = 64 << 10;
const MAX_FAULTS: usize = 1_000;

/// An answer: a status, and why it is no other.
type Refusal = (&'static str, String);

/// Answers a request for [`TARGET`].
///
/// # Errors
/// When the request's body cannot be read.
pub(crate) async fn answer(
    mut incoming: Incoming,
    relay: &Relay,
    wire: &ServerConfig,
) -> Result<(), WireError> {
    let outcome = match asked(&incoming) {
        Ok(None) => Ok(()),
        Ok(Some(bytes)) => {
            let body = incoming.body(bytes, wire).await?;
            faults(&body).map(|faults| relay.faults.replace(&faults, Instant::now()))
        }
        Err(refusal) => Err(refusal),
    };
    let (status, answer) = match outcome {
        Ok(()) => {
            let hits = relay.faults.hits().into_iter();
            let faults: Vec<_> = hits.map(|(fault, hits)| json!({ "fault": fault, "hits": hits })).collect();
            ("200 OK", json!({ "faults": faults }))
        }
        Err((status, why)) => (status, json!({ "error": why })),
    };
    let kind = ("Content-Type", "application/json");
    incoming.answer_with(status, &[kind], answer.to_string().as_bytes()).await;
    Ok(())
}

/// Whether the request is allowed, and how long a body it has that replaces the faults.
fn asked(incoming: &Incoming) -> Result<Option<usize>, Refusal> {
    let peer = incoming.peer_addr().map(|peer| peer.ip().to_canonical());
    if !peer.is_ok_and(|peer: IpAddr| peer.is_loopback()) {
        return Err(("403 Forbidden", "--control answers this host alone".to_owned()));
    }
    if incoming.header("origin").is_some() || !incoming.names_this_host() {
        return Err(("403 Forbidden", "--control answers no page of a browser".to_owned()));
    }
    match incoming.method() {
        "GET" => Ok(None),
        "PUT" => {
            let length = incoming.header("content-length").and_then(|length| length.parse::<usize>().ok());
            match length {
                None => Err(("411 Length Required", "send a Content-Length".to_owned())),
                Some(bytes) if bytes > MAX_BODY_BYTES => {
                    Err(("413 Content Too Large", format!("send at most {MAX_BODY_BYTES} bytes")))
                }
                Some(bytes) => Ok(Some(bytes)),
            }
        }
        _ => Err(("405 Method Not Allowed", "use GET or PUT".to_owned())),
    }
}

/// The faults of a body: a JSON array of texts as `--fault` takes them.
fn faults(body: &[u8]) -> Result<Vec<Fault>, Refusal> {
    let bad = |why: String| ("400 Bad Request", why);
    let named: Vec<String> = serde_json::from_slice(body)
        .map_err(|error| bad(format!("send faults as [\"no-eose\", \"late-ok=2s\"]: {error}")))?;
    if named.len() > MAX_FAULTS {
        return Err(bad(format!("send at most {MAX_FAULTS} faults")));
    }
    let faults: Result<Vec<Fault>, UnknownFault> = named.iter().map(|text| text.parse()).collect();
    let faults = faults.map_err(|error| bad(error.to_string()))?;
    match faults.iter().find(|fault| fault.is_of_the_process()) {
        None => Ok(faults),
        Some(fault) => Err(bad(format!("{fault} begins with the relay: start it with --fault {fault}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_a_list_of_faults_that_a_running_relay_can_take() {
        assert_eq!(faults(b"[]").unwrap(), []);
        assert_eq!(faults(br#"["no-eose"]"#).unwrap().len(), 1);
        let many = format!("[{}\"reset\"]", "\"reset\",".repeat(1_000));
        for (body, expected) in [
            (&b"{}"[..], "send faults as"),
            (b"[\"no-oese\"]", "known: "),
            (b"[\"delay=1s\"]", "start it with --fault delay=1s"),
            (many.as_bytes(), "at most 1000"),
            (b"\xff", "send faults as"),
        ] {
            let (status, why) = faults(body).unwrap_err();
            assert!(status.starts_with("400") && why.contains(expected), "{why}");
        }
    }
}
