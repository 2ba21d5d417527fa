//! Rates of a running strfry: its metrics as Prometheus text, read twice.

use std::{
    fs::File,
    io::Read,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use wire::{Endpoint, RelayUrl};

/// Most bytes of a text; strfry's has some kilobytes.
const MAX_BYTES: u64 = 256 << 10;

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Form of what is asked for.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4";

/// EVENT messages that clients sent.
const PUBLISHED: &str = "nostr_client_messages_total";
/// EVENT messages that answered requests. strfry counts no live delivery: `sendEvent` counts,
/// `sendEventToBatch` does not (strfry's src/RelaySender.h).
const STORED: &str = "nostr_relay_messages_total";
/// Events that were new, and went to live subscribers.
const WRITTEN: &str = "strfry_write_events_total";
const CONNECTIONS: &str = "strfry_connections_current";

/// The label of EVENT messages among those of other verbs.
const EVENTS: &str = "verb=\"EVENT\"";

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Metrics {
    published: f64,
    stored: f64,
    written: f64,
    connections: f64,
}

/// Means between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    pub(crate) publishes_per_s: f64,
    pub(crate) stored_per_s: f64,
    /// New events, each of which goes to live subscribers.
    pub(crate) written_per_s: f64,
    pub(crate) connections: f64,
}

/// Reads metrics twice: two sources once each, taken `over` apart, or one source again after that time.
///
/// # Errors
/// When a source cannot be read, or is no text of strfry's metrics; each names its source.
pub(crate) fn rates(sources: &[String], over: Duration) -> Result<Rates> {
    let (first, last) = (&sources[0], sources.last().unwrap_or(&sources[0]));
    let began = Instant::now();
    let before = read(first)?;
    let took = if sources.len() == 1 {
        thread::sleep(over);
        began.elapsed()
    } else {
        over
    };
    between(before, read(last)?, took.as_secs_f64()).context("--from-strfry")
}

fn read(source: &str) -> Result<Metrics> {
    let rest = source.strip_prefix("http").filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
    let Some(rest) = rest else {
        let text = load(Path::new(source));
        return text.and_then(|text| parse(&text)).with_context(|| format!("--from-strfry {source}"));
    };
    let url: RelayUrl = format!("ws{rest}").parse().context("--from-strfry")?;
    // Without user and password.
    let shown = url.http();
    let fetch = || parse(&wire::fetch(&Endpoint::new(url, None)?, PROMETHEUS_TEXT, PATIENCE)?.text);
    fetch().with_context(|| format!("--from-strfry {shown}"))
}

fn load(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .context("cannot read it")?;
    ensure!(
        bytes.len() as u64 <= MAX_BYTES,
        "it has more than {MAX_BYTES} bytes, so it is not text of strfry's metrics"
    );
    String::from_utf8(bytes).context("it is not UTF-8, so it is not Prometheus text")
}

/// Reads the four metrics.
fn parse(text: &str) -> Result<Metrics> {
    Ok(Metrics {
        published: value_of(PUBLISHED, text)?,
        stored: value_of(STORED, text)?,
        written: value_of(WRITTEN, text)?,
        connections: value_of(CONNECTIONS, text)?,
    })
}

/// The value of a metric, of several verbs that of EVENT. A verb that strfry did not see has no line, so a
/// family that is declared stands for 0.
fn value_of(metric: &str, text: &str) -> Result<f64> {
    let (mut found, mut is_declared) = (None, false);
    for (number, line) in (1..).zip(text.lines()) {
        let declared = line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next());
        is_declared |= declared == Some(metric);
        let line = line.trim();
        let (name, rest) = line.split_at(line.find(['{', ' ', '\t']).unwrap_or(line.len()));
        let (labels, rest) =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).unwrap_or((EVENTS, rest));
        if name != metric || !labels.split(',').any(|label| label.trim() == EVENTS) {
            continue;
        }
        let value = rest.split_whitespace().next().and_then(|value| value.parse::<f64>().ok());
        let value = value.filter(|value| value.is_finite() && *value >= 0.0);
        let value = value.with_context(|| format!("line {number} has no number for {metric}"))?;
        ensure!(found.replace(value).is_none(), "line {number} states {metric} again");
    }
    found.or(is_declared.then_some(0.0)).with_context(|| {
        format!("it has no {metric}; expected the metrics of a strfry with `{WRITTEN}`, as GET /metrics gives them")
    })
}

fn between(before: Metrics, after: Metrics, seconds: f64) -> Result<Rates> {
    let rate = |metric: &str, of: fn(&Metrics) -> f64| {
        let grown = of(&after) - of(&before);
        ensure!(
            grown >= 0.0,
            "{metric} fell between both readings: strfry was started anew, or the readings are in the wrong order"
        );
        Ok(grown / seconds)
    };
    Ok(Rates {
        publishes_per_s: rate(PUBLISHED, |one| one.published)?,
        stored_per_s: rate(STORED, |one| one.stored)?,
        written_per_s: rate(WRITTEN, |one| one.written)?,
        connections: f64::midpoint(before.connections, after.connections),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As strfry writes it, where it answered no request yet.
    fn text(published: &str) -> String {
        format!(
            "# HELP nostr_client_messages_total Total number of Nostr client messages by verb\n\
             # TYPE nostr_client_messages_total counter\n\
             nostr_client_messages_total{{verb=\"CLOSE\"}} 7\n\
             nostr_client_messages_total{{verb=\"EVENT\"}} {published}\n\
             # TYPE nostr_relay_messages_total counter\n\
             # TYPE strfry_write_events_total counter\n\
             strfry_write_events_total 3e1 1766000000000\r\n\
             # TYPE strfry_connections_current gauge\n\
             strfry_connections_current 40\n"
        )
    }

    #[test]
    fn hostile_text_is_an_error_that_names_its_line() {
        let whole = Metrics { published: 100.0, stored: 0.0, written: 30.0, connections: 40.0 };
        assert_eq!(parse(&text("100")).unwrap(), whole);
        for (published, says) in [
            ("", "line 4 has no number for nostr_client_messages_total"),
            ("NaN", "line 4 has no number"),
            ("+Inf", "line 4 has no number"),
            ("-1", "line 4 has no number"),
            ("1e999", "line 4 has no number"),
            ("} 5", "line 4 has no number"),
            (
                "1\nnostr_client_messages_total{verb=\"EVENT\"} 2",
                "line 5 states nostr_client_messages_total again",
            ),
            ("1\nstrfry_connections_current", "line 5 has no number for strfry_connections_current"),
        ] {
            let error = parse(&text(published)).unwrap_err().to_string();
            assert!(error.contains(says), "{published}: {error}");
        }
        for hostile in [
            "",
            "<html>{{{}}}\0\u{202e}",
            "nostr_client_messages_total{",
            "# TYPE strfry_write_events_total counter",
        ] {
            let error = parse(hostile).unwrap_err().to_string();
            assert!(error.contains(PUBLISHED), "{hostile}: {error}");
        }
    }

    #[test]
    fn a_file_without_an_end_and_one_of_other_bytes_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metrics");
        for (bytes, says) in
            [(vec![b'#'; (256 << 10) + 1], "more than 262144 bytes"), (vec![0xff; 9], "not UTF-8")]
        {
            std::fs::write(&file, bytes).unwrap();
            let error = format!("{:#}", read(file.to_str().unwrap()).unwrap_err());
            assert!(error.contains(says) && error.contains("--from-strfry"), "{error}");
        }
        let error = format!("{:#}", load(Path::new("/dev/zero")).unwrap_err());
        assert!(error.contains("more than 262144 bytes"), "{error}");
    }
}
