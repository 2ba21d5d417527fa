//! A client's connection: made, proven (NIP-42), read slowly, dropped, closed.

use std::{
    borrow::Cow,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use codecs::{ClientMessage, Event, RelayMessage};
use tokio::time::timeout;
use wire::{CloseCode, Connection, Message, Traffic};

use super::{Client, Reader, SLOW_RECEIVE_BUFFER_BYTES, Wake};
use crate::{recorder::Metric, shared::Fate};

/// How long the relay may take for one answer while a connection is set up.
const PATIENCE: Duration = Duration::from_secs(10);

/// tokio's timer counts in milliseconds.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// How often a slow reader looks whether it has everything, once it reads as fast as it can.
const CATCH_UP_POLL: Duration = Duration::from_millis(50);

/// NIP-42.
const CLIENT_AUTH: u16 = 22_242;

impl Client {
    /// Connects unless it is connected, and answers the relay's challenge where the scenario says so.
    pub(super) async fn connect(&mut self) -> anyhow::Result<()> {
        if self.link.is_some() {
            return Ok(());
        }
        let receive_buffer_bytes = self.reader.as_ref().map(|_| SLOW_RECEIVE_BUFFER_BYTES);
        let started = Instant::now();
        let connection = self.dialer.dial(receive_buffer_bytes).await;
        let url = &self.dialer.target().url;
        let connection = connection.with_context(|| format!("connecting to {url} failed"))?;
        // Connections before the start are no part of what is measured.
        self.record_since(Metric::Handshake, started);
        let agreed = connection.agreement().format;
        if Some(&agreed) != self.dialer.target().offer.formats.first() {
            bail!("the relay agreed on {agreed} this time");
        }
        self.link = Some(connection);
        self.before = Traffic::default();
        if self.shared.workload.auth { self.authenticate().await } else { Ok(()) }
    }

    fn record_since(&self, metric: Metric, since: Instant) {
        if self.shared.has_started() {
            self.recorder.borrow_mut().record(self.label, metric, super::nanos(since.elapsed()));
        }
    }

    /// Proves to be somebody (NIP-42): waits for the challenge, signs it, waits for OK.
    async fn authenticate(&mut self) -> anyhow::Result<()> {
        let challenge = loop {
            let message = self.next_answer().await.context("waiting for the relay's challenge (NIP-42)")?;
            if let RelayMessage::Auth { challenge } = self.codec.decode_relay(&message.payload)? {
                break challenge.into_owned();
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let url = self.dialer.target().url.clone();
        let mut event = Event {
            id: [0; 32],
            pubkey: [0; 32],
            created_at: i64::try_from(now).unwrap_or(i64::MAX),
            kind: CLIENT_AUTH,
            tags: vec![vec!["relay".into(), url.into()], vec!["challenge".into(), challenge.into()]],
            content: Cow::Borrowed(""),
            sig: [0; 64],
        };
        corpus::sign_as(&mut event, &format!("client {}", self.id));
        let sent = Instant::now();
        self.feed(&ClientMessage::Auth(Cow::Borrowed(&event))).await?;
        self.flush().await?;
        loop {
            let message = self.next_answer().await.context("waiting for OK to AUTH")?;
            if let RelayMessage::Ok { id, accepted, text } = self.codec.decode_relay(&message.payload)?
                && id == event.id
            {
                self.record_since(Metric::Auth, sent);
                return if accepted { Ok(()) } else { bail!("the relay refused AUTH: {text}") };
            }
        }
    }

    /// The next message while a connection is set up.
    pub(super) async fn next_answer(&mut self) -> anyhow::Result<Message> {
        let link = self.link.as_mut().context("a client connects before it reads")?;
        let message = timeout(PATIENCE, link.next())
            .await
            .with_context(|| format!("the relay was silent for {} s", PATIENCE.as_secs()))?;
        Ok(message.context("the relay closed the connection")??)
    }

    /// Ends TCP without a word and keeps the connection's counts.
    pub(super) fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            self.keep_traffic(&link);
        }
    }

    /// Closes the connection as RFC 6455 wants it and keeps its counts.
    pub(super) async fn close_link(&mut self) {
        if let Some(mut link) = self.link.take() {
            self.keep_traffic(&link);
            link.close(CloseCode::Normal, "").await;
        }
    }

    /// Of a connection from before the start, only what came after it; but its handshake.
    fn keep_traffic(&mut self, link: &Connection) {
        let traffic = link.traffic();
        let before = std::mem::take(&mut self.before);
        let memory = link.compression_memory();
        let (connections, sum) = &mut self.report.ended;
        *connections += 1;
        sum.own_bytes += memory.own_bytes;
        sum.shared_bytes = memory.shared_bytes.max(sum.shared_bytes);
        self.report.traffic += Traffic {
            sent: traffic.sent - before.sent,
            received: traffic.received - before.received,
            ..traffic
        };
        self.unflushed = false;
    }

    /// After a message a slow reader waits as long as its speed demands.
    pub(super) fn pause_after(&mut self, payload_bytes: usize) {
        let Some(reader) = self.reader.as_mut().filter(|reader| !reader.catching_up) else { return };
        let wait = Duration::from_secs_f64(payload_bytes as f64 / reader.bytes_per_s.max(1) as f64);
        let now = Instant::now();
        reader.free_at = reader.free_at.max(now) + wait;
        let debt = reader.free_at - now;
        // What a timer cannot wait for adds up until it can.
        if debt >= TIMER_STEP {
            reader.pausing = true;
            self.wake_after(debt, Wake::Read);
        }
    }

    /// From now on a slow reader reads as fast as it can, until it has everything.
    pub(super) fn catch_up(&mut self) {
        if let Some(Reader { pausing, catching_up, .. }) = &mut self.reader
            && self.link.is_some()
        {
            (*pausing, *catching_up) = (false, true);
            self.wake_after(CATCH_UP_POLL, Wake::CaughtUp);
        }
    }

    /// Ends its part when every publication has a fate and everything accepted has come.
    pub(super) fn end_when_caught_up(&mut self) {
        let shared = &self.shared;
        let filters = shared.workload.roles[self.id].filters().iter().zip(&self.report.seen);
        let caught_up = filters.into_iter().all(|(live, seen)| {
            let mut owed = shared.workload.live[*live as usize].matches.iter().filter(|p| !seen.contains(*p));
            owed.all(|p| matches!(shared.fate(p), Fate::Rejected | Fate::Dropped))
        });
        if caught_up {
            self.shared.caught_up();
        } else {
            self.wake_after(CATCH_UP_POLL, Wake::CaughtUp);
        }
    }
}
