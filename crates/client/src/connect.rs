//! A client's connection: made, read slowly, ended.

use std::time::Duration;

use super::{Action, Client, Proof, Subscription, Wake, Words};
use crate::incidents;
use workload::{Timing, schedule::nanos};

/// How long the set-up of a connection may take: a relay may be silent, or send stored events without
/// end, and never EOSE.
const SET_UP: Duration = Duration::from_secs(60);

/// How long a client waits for a challenge on a new connection. Some relays send it only when a
/// message needs it.
const GREETING: Duration = Duration::from_secs(1);

/// Resolution of the timers of tokio, one millisecond.
const TIMER_STEP_NS: u64 = 1_000_000;

/// How often a slow reader checks whether all other work is done, and then whether it has everything.
const CATCH_UP_POLL: Duration = Duration::from_millis(50);

/// The state of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Down,
    Connecting {
        since_ns: u64,
    },
    /// Waits for the relay's AUTH challenge until then, and for OK to its answer.
    Challenge {
        until_ns: u64,
    },
    Up,
}

impl ConnectionState {
    pub(super) fn is_up(&self) -> bool {
        *self == ConnectionState::Up
    }
}

/// How a client that reads slowly keeps to its speed.
#[derive(Debug)]
pub(super) struct Reader {
    bytes_per_s: u64,
    /// When a reader of its speed would have read everything that came so far.
    free_at_ns: u64,
    /// Whether it must wait before it reads on.
    pub(super) pausing: bool,
    /// Whether it reads at full speed, because all other work is done.
    catching_up: bool,
    /// Set once it has everything, or was cut off.
    done: bool,
}

impl Reader {
    pub(super) fn new(bytes_per_s: u64) -> Self {
        // At 0 bytes a second it reads nothing until it catches up.
        Reader { bytes_per_s, free_at_ns: 0, pausing: bytes_per_s == 0, catching_up: false, done: false }
    }
}

impl Client {
    /// Asks for a connection, unless there is one.
    pub(super) fn connect(&mut self, now_ns: u64) {
        if self.connection == ConnectionState::Down {
            self.connection = ConnectionState::Connecting { since_ns: now_ns };
            self.actions.push_back(Action::Connect);
        }
    }

    /// Takes the connection that [`Action::Connect`] asked for.
    pub fn on_connected(&mut self, now_ns: u64) {
        if let ConnectionState::Connecting { since_ns } = self.connection {
            self.record_always(Timing::Handshake, since_ns, now_ns);
            self.shared.connected_in(now_ns.saturating_sub(since_ns));
            if self.is_recorded() {
                self.replay.up_ns = now_ns;
            }
        }
        if self.shared.workload.auth && !self.shared.workload.ungreeted {
            self.connection = ConnectionState::Challenge { until_ns: now_ns + nanos(GREETING) };
        } else {
            self.set_up(now_ns);
        }
    }

    /// Takes the end of the connection, or the failure to make one.
    pub fn on_disconnected(&mut self, why: &str) {
        self.go_down();
        // A relay may end a connection that is read too slowly.
        let Some(reader) = self.reader.as_mut().filter(|_| self.started) else {
            return self.fail(why.to_owned());
        };
        self.wakes.clear();
        if !std::mem::replace(&mut reader.done, true) {
            self.report.cut_off = Some(why.to_owned());
            self.shared.caught_up();
        }
    }

    /// This machine had no room for the connection. The sessions that wait for it do not begin, which is
    /// not the relay's fault.
    pub fn on_no_connection(&mut self, why: &str, now_ns: u64) {
        self.go_down();
        if self.is_recorded() {
            return self.fail(why.to_owned());
        }
        self.report.tell(Words::NoConnection, || why.to_owned());
        for session in std::mem::take(&mut self.waiting) {
            self.shared.note_dropped_session(session);
            self.did_not_begin(session);
            self.end_session(session, now_ns);
            self.end_loop();
        }
    }

    /// Notes the sessions that still wait for a connection at the end of the run: a relay owes them
    /// nothing.
    pub(super) fn leave_unconnected(&mut self) {
        for session in std::mem::take(&mut self.waiting) {
            self.sessions.remove(&session);
            self.did_not_begin(session);
            self.report.not_connected.push(session);
        }
    }

    fn did_not_begin(&mut self, session: u32) {
        if let Some(last) = self.report.began.iter().rposition(|began| *began == session) {
            self.report.began.remove(last);
        }
    }

    /// Notes that there is no connection any more.
    pub(super) fn go_down(&mut self) {
        self.connection = ConnectionState::Down;
        self.gives_up_ns = None;
        self.proof = Proof::default();
    }

    /// Opens live subscriptions and begins the sessions that waited for the connection.
    pub(super) fn set_up(&mut self, now_ns: u64) {
        self.connection = ConnectionState::Up;
        self.gives_up_ns = None;
        if !self.started {
            self.subscribe(now_ns);
        }
        for session in std::mem::take(&mut self.waiting) {
            self.begin_session(session, now_ns);
        }
    }

    fn subscribe(&mut self, now_ns: u64) {
        let shared = std::sync::Arc::clone(&self.shared);
        let filters = shared.workload.roles[self.id].filters();
        let all = (0..).zip(filters);
        self.report.live = all.map(|(n, live)| self.follow(Subscription::Live(n), *live)).collect();
        let matching = |live: &u32| shared.workload.live[*live as usize].matches.count_ones(..) as u64;
        self.light.iter_mut().for_each(|light| light.awaited = filters.iter().map(matching).sum());
        if !filters.is_empty() {
            self.wait_for_set_up(now_ns);
        }
    }

    /// Whether each live subscription is open and AUTH has its OK.
    pub(super) fn is_set_up(&self) -> bool {
        self.report.live.iter().all(|live| !live.opening) && !self.proof.is_under_way()
    }

    /// Waits no more once the set-up is done.
    pub(super) fn set_up_if_open(&mut self) {
        if self.connection.is_up() && self.is_set_up() {
            self.gives_up_ns = None;
        }
    }

    /// Waits for the set-up, but not for ever.
    pub(super) fn wait_for_set_up(&mut self, now_ns: u64) {
        self.gives_up_ns = Some(now_ns + nanos(SET_UP));
    }

    /// Ends with the answer that the relay owes and did not give.
    pub(super) fn give_up(&mut self) {
        let shared = std::sync::Arc::clone(&self.shared);
        let mut all = (0..).zip(&self.report.live);
        let owed = match all.find(|(_, live)| live.opening) {
            Some((n, live)) => {
                let filter = &shared.workload.live[live.live as usize].filter;
                format!("EOSE of {}", incidents::request(&Subscription::Live(n).to_string(), filter))
            }
            None => "OK to AUTH (NIP-42)".to_owned(),
        };
        self.fail(format!("for {} s {owed} did not come{}", SET_UP.as_secs(), self.report.said()));
    }

    /// Whether the client may read now.
    pub fn may_read(&self) -> bool {
        !self.started || self.reader.as_ref().is_none_or(|reader| !reader.pausing)
    }

    /// Whether its role reads slowly, which needs a small receive buffer.
    pub fn reads_slowly(&self) -> bool {
        self.reader.is_some()
    }

    /// Makes a slow reader wait after a message for as long as its speed demands.
    pub(super) fn pause_after(&mut self, payload_bytes: usize, now_ns: u64) {
        let started = self.started;
        let Some(reader) = self.reader.as_mut().filter(|reader| started && !reader.catching_up) else {
            return;
        };
        let wait = Duration::from_secs_f64(payload_bytes as f64 / reader.bytes_per_s.max(1) as f64);
        reader.free_at_ns = reader.free_at_ns.max(now_ns).saturating_add(nanos(wait));
        let free_at_ns = reader.free_at_ns;
        // Waits shorter than the resolution of timers add up.
        if free_at_ns - now_ns >= TIMER_STEP_NS {
            reader.pausing = true;
            self.wake_at(free_at_ns, Wake::Read);
        }
    }

    /// Lets a slow reader read at full speed once all other work is done. Reports that it has caught up
    /// once it has every publication that the relay accepted.
    pub(super) fn catch_up(&mut self, now_ns: u64) {
        let shared = &self.shared;
        let Some(reader) = self.reader.as_mut().filter(|reader| !reader.done) else { return };
        if !reader.catching_up && shared.waits_for_slow_readers() {
            (reader.pausing, reader.catching_up) = (false, true);
        }
        let has_all = || {
            self.report.live.iter().filter(|live| !live.closed).all(|live| {
                let mut owed = shared.workload.live[live.live as usize].matches.difference(&live.seen);
                owed.all(|publication| shared.is_undelivered(publication))
            })
        };
        if reader.catching_up && has_all() {
            reader.done = true;
            shared.caught_up();
        } else {
            self.wake_at(now_ns + nanos(CATCH_UP_POLL), Wake::CatchUp);
        }
    }
}
