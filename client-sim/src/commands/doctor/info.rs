//! Fetches the relay's information document (NIP-11).

use std::time::Duration;

use anyhow::Context;
use codecs::quoted;
use wire::Endpoint;

use super::answers::Info;

/// Proof of work of each event, in zero bits of its id (NIP-13).
pub(super) const WORK_BITS: &str = "min_pow_difficulty";

/// Numbers that a rehearsal reads.
const LIMITS: [&str; 4] = ["max_subscriptions", "max_limit", "default_limit", WORK_BITS];

/// Time for the whole document.
const PATIENCE: Duration = Duration::from_secs(3);

/// Fetches and reads the document. Fields of a wrong type count as absent; texts are short, and
/// harmless to a terminal.
pub(crate) fn fetch(relay: &Endpoint) -> anyhow::Result<Info> {
    read(&wire::document(relay, PATIENCE)?.text)
}

/// Reads a document.
fn read(text: &str) -> anyhow::Result<Info> {
    let document: serde_json::Value =
        serde_json::from_str(text).context("the relay's NIP-11 document is not JSON")?;
    let text = |name: &str| Some(quoted(document.get(name)?.as_str()?));
    let limitation = document.get("limitation");
    // A relay that takes nothing would serve nobody: 0 states no limit.
    let number =
        |name: &str| limitation?.get(name)?.as_u64()?.try_into().ok().filter(|limit: &i64| *limit > 0);
    let number = |name: &str| Some((name.to_owned(), number(name)?));
    let tokens = document.get("wire").and_then(|wire| wire.get("tokens")?.as_array());
    let tokens = tokens.into_iter().flatten().filter_map(|token| Some(token.as_str()?.to_owned()));
    Ok(Info {
        tokens: tokens.collect(),
        name: text("name"),
        software: text("software"),
        version: text("version"),
        limitation: LIMITS.into_iter().filter_map(number).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_as_far_as_its_fields_have_their_types() {
        let info = read(
            r#"{"name":"x","software":7,"limitation":{"max_limit":500,"default_limit":0,
            "max_subscriptions":"many","auth_required":true}}"#,
        )
        .unwrap();
        assert_eq!((info.name.as_deref(), info.software), (Some("x"), None));
        assert_eq!(info.limitation, [("max_limit".to_owned(), 500)].into());
        assert_eq!(read("[]").unwrap(), Info::default());
        assert!(read("<html>").is_err());
    }

    #[test]
    fn texts_are_cut_and_have_no_control_characters() {
        let version = "1".repeat(1_000_000);
        let info =
            read(&format!(r#"{{"software":"\u001b[2J\nrelay\u202e","version":"{version}"}}"#)).unwrap();
        assert_eq!(info.software.as_deref(), Some(r"\u{1b}[2J\nrelay\u{202e}"));
        let version = info.version.unwrap();
        assert!(version.len() < 300 && version.ends_with("1…"), "{version}");
    }
}
