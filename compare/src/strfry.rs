//! Rates of a running strfry: its metrics as Prometheus text, read twice.

use std::{
    fs::File,
    io::Read,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
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

/// Why a text gives no rates.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(crate) enum MetricsError {
    #[error("it has more than {} bytes, so it is not text of strfry's metrics", MAX_BYTES)]
    TooLong,
    #[error("it is not UTF-8, so it is not Prometheus text")]
    NotText,
    #[error(
        "it has no {metric}; expected the metrics of a strfry with `{}`, as GET /metrics gives them",
        WRITTEN
    )]
    Missing { metric: &'static str },
    #[error("line {line} has no number for {metric}")]
    NoNumber { metric: &'static str, line: usize },
    #[error("line {line} states {metric} again")]
    Twice { metric: &'static str, line: usize },
    #[error(
        "{0} fell between both readings: strfry was started anew, or the readings are in the wrong order"
    )]
    Fell(&'static str),
}

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
/// [`MetricsError`], and when a source cannot be read; each names its source.
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
        return text.and_then(|text| Ok(parse(&text)?)).with_context(|| format!("--from-strfry {source}"));
    };
    let url: RelayUrl = format!("ws{rest}").parse().context("--from-strfry")?;
    // Without user and password.
    let shown = url.http();
    let fetch = || {
        let text = wire::fetch(&Endpoint::new(url, None)?, PROMETHEUS_TEXT, PATIENCE)?;
        anyhow::Ok(parse(&text)?)
    };
    fetch().with_context(|| format!("--from-strfry {shown}"))
}

fn load(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .context("cannot read it")?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(MetricsError::TooLong.into());
    }
    Ok(String::from_utf8(bytes).map_err(|_| MetricsError::NotText)?)
}

/// Reads the four metrics. A verb that strfry did not see has no line, so its family stands for 0.
fn parse(text: &str) -> Result<Metrics, MetricsError> {
    let mut found: [(&'static str, Option<f64>); 4] =
        [PUBLISHED, STORED, WRITTEN, CONNECTIONS].map(|metric| (metric, None));
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let (name, rest) = line.split_at(line.find(['{', ' ', '\t']).unwrap_or(line.len()));
        let Some((metric, value)) = found.iter_mut().find(|(metric, _)| *metric == name) else { continue };
        let metric = *metric;
        let (labels, rest) = match rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((labels, rest)) => (Some(labels), rest),
            None => (None, rest),
        };
        let is_other_verb =
            labels.is_some_and(|labels| !labels.split(',').any(|label| label.trim() == EVENTS));
        if is_other_verb {
            continue;
        }
        let line = number + 1;
        let given = rest.split_whitespace().next().and_then(|value| value.parse::<f64>().ok());
        let given = given.filter(|value| value.is_finite() && *value >= 0.0);
        let given = given.ok_or(MetricsError::NoNumber { metric, line })?;
        if value.replace(given).is_some() {
            return Err(MetricsError::Twice { metric, line });
        }
    }
    let is_declared = |metric: &str| {
        text.lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .any(|line| line.split(' ').next() == Some(metric))
    };
    let [published, stored, written, connections] = found.map(|(metric, value)| {
        let none = if is_declared(metric) { Some(0.0) } else { None };
        value.or(none).ok_or(MetricsError::Missing { metric })
    });
    Ok(Metrics { published: published?, stored: stored?, written: written?, connections: connections? })
}

fn between(before: Metrics, after: Metrics, seconds: f64) -> Result<Rates, MetricsError> {
    let rate = |metric: &'static str, of: fn(&Metrics) -> f64| {
        let grown = of(&after) - of(&before);
        if grown < 0.0 { Err(MetricsError::Fell(metric)) } else { Ok(grown / seconds) }
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

    /// As strfry writes it.
    fn text(published: &str, stored: &str, written: &str) -> String {
        format!(
            "# HELP nostr_client_messages_total Total number of Nostr client messages by verb\n\
             # TYPE nostr_client_messages_total counter\n\
             nostr_client_messages_total{{verb=\"CLOSE\"}} 7\n\
             nostr_client_messages_total{{verb=\"EVENT\"}} {published}\n\
             # TYPE nostr_relay_messages_total counter\n\
             {stored}\
             # TYPE nostr_events_total counter\n\
             nostr_events_total{{kind=\"1\"}} 9\n\
             # TYPE strfry_write_events_total counter\n\
             strfry_write_events_total {written}\n\
             # TYPE strfry_connections_current gauge\n\
             strfry_connections_current 40\n"
        )
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = parse(&text("100", "", "80")).unwrap();
        assert_eq!(before, Metrics { published: 100.0, stored: 0.0, written: 80.0, connections: 40.0 });
        let after =
            parse(&text("160 1766000000000", "nostr_relay_messages_total{verb=\"EVENT\"} 3e2\r\n", "110"))
                .unwrap();
        let rates = between(before, after, 30.0).unwrap();
        let expected =
            Rates { publishes_per_s: 2.0, stored_per_s: 10.0, written_per_s: 1.0, connections: 40.0 };
        assert_eq!(rates, expected);
        assert_eq!(between(after, before, 30.0), Err(MetricsError::Fell(PUBLISHED)));
    }

    #[test]
    fn hostile_text_is_an_error_that_names_its_line() {
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
            let error = parse(&text(published, "", "1")).unwrap_err().to_string();
            assert!(error.contains(says), "{published}: {error}");
        }
        for (hostile, missing) in [
            ("", PUBLISHED),
            ("<html>{{{}}}\0\u{202e}", PUBLISHED),
            ("nostr_client_messages_total{", PUBLISHED),
        ] {
            let error = parse(hostile).unwrap_err();
            let is_typed = [
                MetricsError::Missing { metric: missing },
                MetricsError::NoNumber { metric: missing, line: 1 },
            ];
            assert!(is_typed.contains(&error), "{hostile}: {error}");
        }
        assert_eq!(
            parse("# TYPE strfry_write_events_total counter"),
            Err(MetricsError::Missing { metric: PUBLISHED })
        );
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
