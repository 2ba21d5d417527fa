//! Drives a [`machine::Connection`] over a socket: the only place where the relay reads and writes.
//!
//! One task owns a connection. In a turn it takes all messages and deliveries that are ready,
//! writes the answers and flushes once, because a flush is a system call. While a flush waits for
//! the peer, incoming messages are read ahead, up to a bound: the peer may read only after its own
//! messages were taken.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures::FutureExt;
use recording::{Recorded, Side};
use tokio::time::{MissedTickBehavior, timeout};
use tracing::debug;
use wire::{CloseCode, Connection, Message, WireError};

use crate::{
    fanout::{Outbox, Stop},
    machine::{self, Broken, Close, Opening, Progress, Time},
    relay::Relay,
    totals::add,
};

/// The longest turn, after which a session flushes and yields. A flush is a system call, which
/// costs more than a message does (`cargo bench -p relay-sim --bench floor`, docs/relay-cost.md).
const TURN: Duration = Duration::from_millis(2);

/// How late tokio's timer may fire, which counts in milliseconds: batches are due earlier by as
/// much.
const TIMER_LATE: Duration = Duration::from_millis(1);

/// The time that a stopping relay gives a peer to take what is left.
const FAREWELL: Duration = Duration::from_secs(2);

/// The time that a slow consumer has to read the rest of the socket's buffer and the Close frame after
/// it.
const SLOW_FAREWELL: Duration = Duration::from_secs(10);

/// Serves the connection of this number until it ends, and counts what it moved.
pub(crate) async fn run(relay: Arc<Relay>, conn: Connection, outbox: Arc<Outbox>, number: u64) {
    let mut session = Session::new(relay, conn, outbox, number);
    let end = match session.serve().await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    session.finish(end).await;
}

struct Session {
    relay: Arc<Relay>,
    transport: Transport,
    machine: machine::Connection,
    outbox: Arc<Outbox>,
}

/// The connection, and what came over it.
struct Transport {
    conn: Connection,
    /// Messages that arrived while a flush waited for the peer.
    unread: VecDeque<Message>,
    /// See [`held_bytes`].
    unread_bytes: usize,
    recorded: Option<Recorded>,
}

impl Transport {
    /// The next message: one that was read ahead, or one from the socket.
    async fn next(&mut self) -> Result<Message, End> {
        if let Some(message) = self.unread() {
            return Ok(message);
        }
        let message = self.conn.next().await.ok_or(End::Left)?.map_err(End::Wire)?;
        self.record(&message);
        Ok(message)
    }

    /// The next message of those that were read ahead.
    fn unread(&mut self) -> Option<Message> {
        let message = self.unread.pop_front()?;
        self.unread_bytes -= held_bytes(&message);
        Some(message)
    }

    /// Keeps a message that is read ahead.
    fn keep(&mut self, message: &Message) {
        self.record(message);
        // The payload may share the read buffer, which it would keep in memory.
        let payload = Bytes::copy_from_slice(&message.payload);
        self.unread_bytes += held_bytes(message);
        self.unread.push_back(Message { payload, opcode: message.opcode });
    }

    /// Records the message that the connection gave last.
    fn record(&self, message: &Message) {
        if let Some(recorded) = &self.recorded {
            let (bytes, format) = (self.conn.arrived_bytes(), self.conn.agreement().format);
            recorded.message(Side::Client, bytes, format, &[&message.payload]);
        }
    }
}

/// Why a session ended.
#[derive(Debug)]
enum End {
    /// The peer closed.
    Left,
    /// The transport failed, or the peer broke its rules.
    Wire(WireError),
    /// The outbox was stopped, by a publisher or by the relay.
    Stopped(Stop),
    /// The session decided so.
    Close(Close),
    /// A fault did.
    Broken(Broken),
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        End::Wire(error)
    }
}

impl From<Close> for End {
    fn from(close: Close) -> Self {
        End::Close(close)
    }
}

impl Session {
    fn new(relay: Arc<Relay>, conn: Connection, outbox: Arc<Outbox>, number: u64) -> Self {
        let agreement = conn.agreement();
        let opening = Opening {
            format: agreement.format,
            batched: agreement.batched,
            shares: conn.shares(),
            local: conn.local_addr().ip(),
            challenge: rand::random(),
        };
        let agreed = || agreement.token.clone().or_else(|| agreement.extensions.clone());
        let recorded = relay.config.recorder.as_ref().map(|recorder| recorder.open(agreed(), None));
        Session {
            machine: machine::Connection::new(Arc::clone(&relay), Arc::clone(&outbox), &opening, number),
            relay,
            transport: Transport { conn, unread: VecDeque::new(), unread_bytes: 0, recorded },
            outbox,
        }
    }

    /// Serves the connection; only returns `Err`.
    async fn serve(&mut self) -> Result<Infallible, End> {
        self.put_out(Instant::now()).await?;
        self.flush().await?;
        let mut pings = tokio::time::interval(self.relay.config.ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset(); // the first tick would be at once
        loop {
            let hold = self.machine.next_timer();
            tokio::select! {
                biased;
                stop = self.outbox.stopped() => return Err(End::Stopped(stop)),
                () = until(hold), if hold.is_some() => {}
                message = self.transport.next() => self.take(&message?, time_now())?,
                () = self.outbox.deliveries(self.machine.deliveries()) => {
                    self.put_out(Instant::now()).await?;
                }
                _ = pings.tick() => self.ping().await?,
            }
            let turn_is_over = self.take_what_is_ready().await?;
            self.machine.on_timer(Instant::now() + TIMER_LATE);
            self.put_out(Instant::now()).await?;
            self.flush().await?;
            if turn_is_over {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Works until nothing is ready or the turn is over.
    async fn take_what_is_ready(&mut self) -> Result<bool, End> {
        let started = time_now();
        let mut time = started;
        loop {
            let message = self.transport.next().now_or_never();
            let mut idle = message.is_none();
            if let Some(message) = message {
                self.take(&message?, time)?;
            }
            self.outbox.take(self.machine.deliveries());
            idle &= self.machine.deliveries().is_empty();
            self.put_out(time.instant).await?;
            if idle {
                return Ok(false);
            }
            // A turn is too short for the time of day to change.
            time.instant = Instant::now();
            if time.instant - started.instant >= TURN {
                return Ok(true);
            }
        }
    }

    fn take(&mut self, message: &Message, time: Time) -> Result<(), End> {
        self.machine.receive(&message.payload, message.opcode, time)?;
        self.machine.broken().map_or(Ok(()), |broken| Err(End::Broken(broken)))
    }

    /// Writes what is to be said, with a flush for as much as fits in one. What arrived while the
    /// peer was slow is taken between flushes, since it may end an answer.
    async fn put_out(&mut self, now: Instant) -> Result<(), End> {
        while self.machine.advance(now) == Progress::Full {
            self.flush().await?;
            while self.machine.has_room()
                && let Some(message) = self.transport.unread()
            {
                self.take(&message, time_now())?;
            }
        }
        Ok(())
    }

    /// Sends what is there, and waits until the peer took it.
    async fn flush(&mut self) -> Result<(), End> {
        if !self.machine.outgoing().is_empty() {
            self.hand_over().await?;
            match self.transport.conn.flush().now_or_never() {
                Some(result) => result?,
                None => self.flush_to_a_slow_peer().await?,
            }
        }
        self.machine.transmitted();
        Ok(())
    }

    /// Hands all messages to the connection. The last flush left room, so that this does not wait.
    async fn hand_over(&mut self) -> Result<(), End> {
        Ok(self.machine.hand_over(&mut self.transport.conn, self.transport.recorded.as_ref()).await?)
    }

    /// Meanwhile messages are read ahead, a stop is heeded, and a peer that neither takes nor sends
    /// anything is given up like one that answers no pings.
    async fn flush_to_a_slow_peer(&mut self) -> Result<(), End> {
        let max_unread_bytes = self.relay.config.outbox_bytes;
        let mut taken = (Instant::now(), self.transport.conn.traffic().sent.wire_bytes);
        loop {
            match timeout(self.relay.config.ping_interval, self.flushed_or_arrived()).await {
                Ok(Meanwhile::Flushed(result)) => return Ok(result?),
                Ok(Meanwhile::Stopped(stop)) => return Err(End::Stopped(stop)),
                Ok(Meanwhile::Arrived(message)) => {
                    self.transport.keep(&message.ok_or(End::Left)??);
                    if self.transport.unread_bytes > max_unread_bytes {
                        let is_first = self.outbox.stop(Stop::SlowConsumer);
                        add(&self.relay.counters.slow_consumers, u64::from(is_first));
                        return Err(End::Stopped(Stop::SlowConsumer));
                    }
                }
                Err(_) => {
                    let wire_bytes = self.transport.conn.traffic().sent.wire_bytes;
                    if wire_bytes > taken.1 {
                        taken = (Instant::now(), wire_bytes);
                    }
                    self.check_life(taken.0.max(self.transport.conn.last_heard()))?;
                }
            }
        }
    }

    async fn flushed_or_arrived(&mut self) -> Meanwhile {
        let Session { transport: Transport { conn, .. }, outbox, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(result) = pin!(conn.flush()).poll(cx) {
                return Poll::Ready(Meanwhile::Flushed(result));
            }
            if let Poll::Ready(stop) = outbox.poll_stopped(cx) {
                return Poll::Ready(Meanwhile::Stopped(stop));
            }
            pin!(conn.next()).poll(cx).map(Meanwhile::Arrived)
        })
        .await
    }

    async fn ping(&mut self) -> Result<(), End> {
        self.check_life(self.transport.conn.last_heard())?;
        tokio::select! {
            // Before a full socket it waits too.
            pinged = timeout(2 * self.relay.config.ping_interval, self.transport.conn.ping()) => match pinged {
                Ok(result) => Ok(result?),
                Err(_) => self.check_life(self.transport.conn.last_heard()),
            },
            stop = self.outbox.stopped() => Err(End::Stopped(stop)),
        }
    }

    fn check_life(&self, last_sign: Instant) -> Result<(), End> {
        let silence = last_sign.elapsed();
        if silence < 2 * self.relay.config.ping_interval {
            return Ok(());
        }
        add(&self.relay.counters.silent_peers, 1);
        let reason = format!("no sign of life for {} s", silence.as_secs());
        Err(End::Close(Close::new(CloseCode::Away, reason)))
    }

    // --- ending ---

    /// Delivers events that were accepted before the relay was told to stop.
    async fn deliver_the_rest(&mut self) -> Result<(), End> {
        self.machine.hold_nothing();
        self.transport.unread.clear();
        self.outbox.take(self.machine.deliveries());
        self.put_out(Instant::now()).await?;
        self.flush().await
    }

    /// Ends as a fault wants it, once earlier answers are on their way.
    async fn break_off(mut self, broken: Broken) {
        if let Some(recorded) = &self.transport.recorded {
            recorded.close(None, Side::Relay);
        }
        let _ = self.put_out(Instant::now()).now_or_never();
        let _ = self.flush().now_or_never();
        self.relay.counters.add_traffic(self.transport.conn.traffic());
        match broken {
            Broken::Reset => self.transport.conn.reset(),
            Broken::HalfOpen => _ = self.outbox.stopped().await,
        }
    }

    /// Records who ended the connection: the client, where this end sends no Close frame.
    fn record_end(&self, close: Option<&Close>) {
        let Some(recorded) = &self.transport.recorded else { return };
        let of_peer =
            self.transport.conn.peer_close().map(|(code, _)| code).filter(|code| *code != CloseCode::Status);
        match close {
            Some(close) => recorded.close(Some(close.code.into()), Side::Relay),
            None => recorded.close(of_peer.map(u16::from), Side::Client),
        }
    }

    async fn finish(mut self, end: End) {
        debug!(?end, "connection ends");
        // Events published while the Close frame waits for the peer make no slow consumer of it.
        self.outbox.end();
        if matches!(end, End::Stopped(Stop::Shutdown))
            && timeout(FAREWELL, self.deliver_the_rest()).await.is_err()
        {
            debug!("the peer did not take what was left for it");
        }
        if let End::Broken(broken) = end {
            return self.break_off(broken).await;
        }
        let is_slow = matches!(end, End::Stopped(Stop::SlowConsumer));
        let patience = if is_slow { SLOW_FAREWELL } else { FAREWELL };
        let counters = &self.relay.counters;
        let close = match end {
            End::Left => None,
            End::Wire(error) => {
                let code = error.close_code();
                add(if code.is_some() { &counters.malformed } else { &counters.connections_failed }, 1);
                code.map(|code| Close::new(code, error.to_string()))
            }
            End::Stopped(stop) => Some(stop.into()),
            End::Close(close) => Some(close),
            End::Broken(_) => None,
        };
        if close.is_some() && !is_slow {
            // Earlier answers go first; a peer that takes nothing gets nothing.
            let _ = self.hand_over().now_or_never();
        }
        self.record_end(close.as_ref());
        let Session { relay, transport: Transport { mut conn, unread, .. }, machine, outbox } = self;
        // A slow peer's connection holds what waits for it, and no more.
        drop((machine, unread));
        if let Some(Close { code, reason }) = close {
            tokio::select! {
                biased;
                () = conn.close_within(code, &reason, patience) => {}
                _ = outbox.stopped(), if is_slow => {
                    debug!("the relay stops before the peer has heard why");
                }
            }
        }
        relay.counters.add_traffic(conn.traffic());
        relay.counters.add_compression(conn.compression_memory());
    }
}

/// Waits until `instant`, or without end where there is none.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until((instant - TIMER_LATE).into()).await,
        None => std::future::pending().await,
    }
}

/// How the wait for a flush ended.
enum Meanwhile {
    Flushed(Result<(), WireError>),
    Arrived(Option<Result<Message, WireError>>),
    Stopped(Stop),
}

/// Bytes of a message that was read ahead: empty messages are not free.
fn held_bytes(message: &Message) -> usize {
    size_of::<Message>() + message.payload.len()
}

/// The system's clocks.
pub(crate) fn time_now() -> Time {
    let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    Time { instant: Instant::now(), unix_seconds }
}
