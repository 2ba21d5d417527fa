//! Reports each relay's state, because a relay may be silent for as long as `--patience`.

use std::{
    fmt,
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// Silence that is reported.
const SILENCE: Duration = Duration::from_secs(1);

/// Longest pause between lines without news.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// State of a relay's task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doing {
    Connecting,
    /// A page was requested.
    Asking,
    /// Live events come as they are published.
    Listening,
    /// Until the next attempt; why the last one failed.
    Pausing(String),
    Ended,
}

/// It, with the instant since when nothing came.
#[derive(Debug, Clone)]
pub(super) struct Silence {
    doing: Doing,
    since: Instant,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.since.elapsed().as_secs_f64();
        match &self.doing {
            Doing::Connecting => write!(f, "connecting for {seconds:.0} s"),
            Doing::Asking => write!(f, "no answer for {seconds:.0} s"),
            Doing::Listening => write!(f, "listening, nothing new for {seconds:.0} s"),
            Doing::Pausing(reason) => write!(f, "is asked again after a pause: {reason}"),
            Doing::Ended => f.write_str("ended"),
        }
    }
}

/// Tells of one relay.
#[derive(Debug)]
pub(super) struct Teller(watch::Sender<Silence>);

impl Teller {
    /// Begins with this.
    pub(super) fn say(&self, doing: Doing) {
        self.0.send_replace(Silence { doing, since: Instant::now() });
    }

    /// Something came.
    pub(super) fn heard(&self) {
        self.0.send_modify(|silence| silence.since = Instant::now());
    }
}

/// Hears of all relays.
#[derive(Debug, Default)]
pub(super) struct Watch {
    relays: Vec<(String, watch::Receiver<Silence>)>,
    told: Option<(Instant, Duration, Vec<Doing>, u64)>,
}

impl Watch {
    pub(super) fn teller(&mut self, relay: &str) -> Teller {
        let (sender, receiver) = watch::channel(Silence { doing: Doing::Connecting, since: Instant::now() });
        self.relays.push((relay.to_owned(), receiver));
        Teller(sender)
    }

    /// The next line of the report, with `events` in the file. Called every second or so: `None`
    /// while no relay is silent, and ever more rarely while nothing changes.
    pub(super) fn line(&mut self, events: u64) -> Option<String> {
        let silences: Vec<_> =
            self.relays.iter().map(|(relay, silence)| (relay, silence.borrow().clone())).collect();
        let silent: Vec<_> = silences
            .iter()
            .filter(|(_, silence)| silence.doing != Doing::Ended && silence.since.elapsed() >= SILENCE)
            .collect();
        if silent.is_empty() {
            return None;
        }
        let doing: Vec<_> = silent.iter().map(|(_, silence)| silence.doing.clone()).collect();
        let pause = match &self.told {
            Some((told, pause, before, count)) if *before == doing && *count == events => {
                if told.elapsed() < *pause {
                    return None;
                }
                (*pause * 2).min(LONGEST_PAUSE)
            }
            Some((told, ..)) if told.elapsed() < 2 * SILENCE => return None,
            _ => 2 * SILENCE,
        };
        self.told = Some((Instant::now(), pause, doing, events));
        let parts: Vec<_> = silent.iter().map(|(relay, silence)| format!("{relay}: {silence}")).collect();
        Some(parts.join("; "))
    }
}
