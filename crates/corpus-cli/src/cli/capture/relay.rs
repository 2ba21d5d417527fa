//! One relay: requests its events page by page into the past, and verifies every event.

use std::time::Duration;

use bytes::Bytes;
use codecs::{ClientMessage, Codec, Event, Filter, Format, RelayMessage, VerifyLevel, quoted};
use corpus::MAX_RECORD_BYTES;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant},
};
use wire::{CloseCode, Compression, Connection, Endpoint, Offer, WireLimits};

use super::{
    history::{History, Page},
    output::SharedIds,
    provenance::{RelayReport, Settled},
};
use crate::cli::{tell, unix_seconds};

/// Failures in a row, without a new event between them, after which a relay is given up: one that
/// never was there, and every one that is not asked for live events until a time.
const MAX_FAILURES: u32 = 5;

/// Larger than any event that is kept, so that a larger event is refused without losing the
/// connection.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Refused events, and notices of a relay, that the provenance keeps.
const MAX_EXAMPLES: usize = 20;
const MAX_NOTICES: usize = 10;

const NIP11_TIMEOUT: Duration = Duration::from_secs(5);
/// Once all events came.
const NIP11_GRACE: Duration = Duration::from_secs(1);

/// The live subscription; pages are called `page` and a number.
const LIVE: &str = "live";

/// A relay, what to request from it, and where accepted events go.
pub(super) struct Task {
    pub(super) relay: Endpoint,
    pub(super) filters: Vec<Filter>,
    pub(super) compression: Compression,
    /// Events to request at once.
    pub(super) page: u64,
    pub(super) patience: Duration,
    /// Whether to stay for live events.
    pub(super) live: bool,
    /// Start of the capture, by the wall clock.
    pub(super) started: i64,
    /// Spans settled in earlier sessions.
    pub(super) settled: Vec<Settled>,
    pub(super) ids: SharedIds,
    pub(super) accepted: mpsc::Sender<Event<'static>>,
}

impl Task {
    /// Runs until there is no more, the relay fails too often, or the capture is stopped.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) -> RelayReport {
        let document = tokio::task::spawn_blocking({
            let relay = self.relay.clone();
            move || wire::document(&relay, NIP11_TIMEOUT).map(|answer| (answer, unix_seconds()))
        });
        let mut report = RelayReport::for_url(self.relay.url());
        let mut histories: Vec<_> = self.filters.iter().cloned().map(History::new).collect();
        let mut given_up = None;
        self.connections(&mut histories, &mut report, &mut given_up, &mut stopped).await;
        let given_up = given_up.filter(|(_, connections)| *connections == report.connections);
        report.failure = report.failure.take().or(given_up.map(|(reason, _)| reason));
        if let Ok(Ok(Ok((answer, at)))) = time::timeout(NIP11_GRACE, document).await {
            let document: Value = serde_json::from_str(&answer.text).unwrap_or_default();
            let word = |name: &str| document[name].as_str().map(quoted);
            (report.software, report.version) = (word("software"), word("version"));
            report.clock_ahead_seconds = answer.date.map(|date| at - date);
        }
        // A clock that is ahead would settle what is still to come.
        let now = self.started.saturating_sub(report.clock_ahead_seconds.unwrap_or(0).max(0));
        let newest = histories.iter().filter_map(|history| history.newest).max();
        report.newest_ahead_seconds = newest.map(|newest| newest.saturating_sub(self.started));
        report.settled = histories.into_iter().filter_map(|history| history.settled(now)).collect();
        report
    }

    /// Connects, again after each failure. Sets why the relay is given up, and after which connection.
    async fn connections(
        &mut self,
        histories: &mut [History],
        report: &mut RelayReport,
        given_up: &mut Option<(String, u64)>,
        stopped: &mut watch::Receiver<bool>,
    ) {
        let mut failures = 0;
        loop {
            let events_before = report.events_new;
            let Err(reason) = self.connection(histories, report, stopped).await else { return };
            let progressed = report.events_new > events_before;
            failures = if progressed { 1 } else { (failures + 1).min(MAX_FAILURES + 1) };
            *given_up = (failures > MAX_FAILURES).then(|| (reason.clone(), report.connections));
            // A relay that starts anew may be away for minutes of a night's capture.
            let comes_back = self.live && report.connections > 0;
            if given_up.is_some() && !comes_back {
                return;
            }
            // 1, 2, 4, 8, 16 and then 32 seconds with the patience of 30.
            let pause = self.patience * (1 << (failures - 1)) / 30;
            tell(&format!("{}: {reason}; asked again in {pause:.0?}", self.relay.url()));
            if time::timeout(pause, stop(stopped)).await.is_ok() {
                return;
            }
        }
    }

    /// Connects, and talks until there is no more or the capture is stopped.
    async fn connection(
        &mut self,
        histories: &mut [History],
        report: &mut RelayReport,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<(), String> {
        let offer = Offer { batched: false, formats: vec![Format::JSON], compression: self.compression };
        let limits = WireLimits {
            max_message_bytes: MAX_MESSAGE_BYTES,
            // A REQ of all filters, which a command line can hold.
            max_outgoing_bytes: Some(MAX_RECORD_BYTES),
            handshake_timeout: self.patience,
            ..WireLimits::default()
        };
        let connect = self.relay.connect(&offer, &limits);
        let connection = tokio::select! {
            () = stop(stopped) => return Ok(()),
            connection = connect => connection.map_err(|error| error.to_string())?,
        };
        report.connections += 1;
        report.extensions.clone_from(&connection.agreement().extensions);
        let codec = Format::JSON.spec().library;
        let mut talk = Talk { task: self, connection, report, pages: 0, codec };
        let left = tokio::select! {
            () = stop(stopped) => Ok(()),
            left = talk.all(histories) => left,
        };
        talk.connection.close(CloseCode::Normal, "").await;
        left
    }
}

/// A connection with its report.
struct Talk<'t> {
    task: &'t mut Task,
    connection: Connection,
    report: &'t mut RelayReport,
    pages: u64,
    codec: &'static dyn Codec,
}

impl Talk<'_> {
    async fn all(&mut self, histories: &mut [History]) -> Result<(), String> {
        if self.task.live {
            // No `since`: what is published now may have any date. The limit is of stored events
            // alone (NIP-01), those of the time without a connection among them.
            let limit = Some(if self.report.connections == 1 { 1 } else { self.task.page });
            let live = |filter: &Filter| Filter { limit, ..filter.clone() };
            let filters = self.task.filters.iter().map(live).collect();
            self.say(&ClientMessage::Req { subscription: LIVE.into(), filters }).await?;
        }
        for history in histories {
            while !history.done {
                let page = self.page(history).await?;
                if page.events() == 0 && !page.ended && !page.refused {
                    let words = self.report.notices.last().map(|words| format!("; it said: {words}"));
                    let seconds = self.task.patience.as_secs_f64();
                    return Err(format!("no answer for {seconds} s{}", words.unwrap_or_default()));
                }
                if let Some(second) = history.advance(&page) {
                    self.report.crowded_seconds += 1;
                    if self.report.crowded_examples.len() < MAX_EXAMPLES {
                        self.report.crowded_examples.push(second);
                    }
                }
                if page.strange > 0 && page.oldest.is_none() {
                    let reason = "a page held nothing but events that were not asked for or have no time";
                    self.report.failure = Some(reason.to_owned());
                }
                // Where late events come, more of them may be older.
                if page.new == 0 {
                    let left_out = history.skip(&self.task.settled);
                    self.report.left_out_before = self.report.left_out_before.max(left_out);
                }
            }
        }
        if self.task.live { self.stay().await } else { Ok(()) }
    }

    /// Requests the newest events of a history that were not requested yet.
    async fn page(&mut self, history: &History) -> Result<Page, String> {
        self.pages += 1;
        let name = format!("page{}", self.pages);
        let asked = history.request(self.task.page);
        self.report.requests += 1;
        let request = ClientMessage::Req { subscription: name.clone().into(), filters: vec![asked.clone()] };
        self.say(&request).await?;
        let mut page = Page::default();
        let mut deadline = Instant::now() + self.task.patience;
        while !page.ended && !page.refused {
            let Some(payload) = self.message(deadline).await? else {
                self.report.requests_without_end += 1;
                break;
            };
            if self.take(&payload, &name, &asked, &mut page).await {
                deadline = Instant::now() + self.task.patience;
            }
        }
        if !page.refused {
            self.say(&ClientMessage::Close { subscription: name.into() }).await?;
        }
        Ok(page)
    }

    /// Takes live events until the caller stops it. Fails if the relay is silent, even to a ping.
    async fn stay(&mut self) -> Result<(), String> {
        let anything = Filter::default();
        loop {
            let patience = self.task.patience;
            match self.message(Instant::now() + patience).await? {
                Some(payload) => {
                    // No page is open any more.
                    self.take(&payload, "", &anything, &mut Page::default()).await;
                }
                None if self.connection.last_heard().elapsed() > 2 * patience => {
                    return Err(format!("no sign of life for {} s", 2 * patience.as_secs()));
                }
                None => self.connection.ping().await.map_err(|error| error.to_string())?,
            }
        }
    }

    /// Applies a relay's message to the page of this name. Whether it brought a new event.
    async fn take(&mut self, payload: &Bytes, name: &str, asked: &Filter, page: &mut Page) -> bool {
        let message = match self.codec.decode_relay(payload) {
            Ok(message) => message,
            Err(error) => {
                self.reject("not a message of NIP-01", &error.to_string());
                page.reject(time_of_event(payload, name), asked);
                return false;
            }
        };
        match message {
            RelayMessage::Event { subscription, event } => {
                let of_page = subscription == name;
                let wanted = if of_page {
                    asked.matches(&event)
                } else {
                    self.task.filters.iter().any(|filter| filter.matches(&event))
                };
                self.report.events_received += 1;
                if !wanted {
                    page.strange += u64::from(of_page);
                    self.reject("not asked for", &codecs::hex::encode(&event.id));
                    return false;
                }
                let created_at = event.created_at;
                let fate = self.accept(&event, payload.len()).await;
                if of_page {
                    page.reaches(created_at);
                    *(if fate == Fate::Rejected { &mut page.rejected } else { &mut page.matching }) += 1;
                }
                if fate == Fate::New {
                    page.new += u64::from(of_page);
                    return true;
                }
            }
            RelayMessage::Eose { subscription, .. } => page.ended |= subscription == name,
            RelayMessage::Closed { subscription, text } => {
                self.note(&format!("CLOSED {subscription}: {text}"));
                page.refused |= subscription == name;
            }
            RelayMessage::Notice { text } => self.note(&format!("NOTICE {text}")),
            RelayMessage::Auth { .. } => self.note("AUTH asked for; this program has no key"),
            _ => {}
        }
        false
    }

    async fn accept(&mut self, event: &Event<'_>, message_bytes: usize) -> Fate {
        if self.task.ids.lock().contains(event) {
            self.report.duplicates += 1;
            return Fate::Duplicate;
        }
        let reason = match event.verify(VerifyLevel::Full) {
            _ if message_bytes > MAX_RECORD_BYTES => Some("larger than 1 MiB".to_owned()),
            Ok(()) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = reason {
            self.reject(&reason, &codecs::hex::encode(&event.id));
            return Fate::Rejected;
        }
        // Whatever is remembered is written, also if the capture ends here. The receiver outlives senders.
        if let Ok(place) = self.task.accepted.reserve().await {
            if !self.task.ids.lock().insert(event) {
                self.report.duplicates += 1;
                return Fate::Duplicate;
            }
            place.send(event.clone().into_owned());
            self.report.events_new += 1;
        }
        Fate::New
    }

    fn reject(&mut self, reason: &str, example: &str) {
        *self.report.rejected.entry(reason.to_owned()).or_default() += 1;
        if self.report.rejected_examples.len() < MAX_EXAMPLES {
            self.report.rejected_examples.push(format!("{reason}: {}", quoted(example)));
        }
    }

    fn note(&mut self, words: &str) {
        let words = quoted(words);
        if self.report.notices.len() < MAX_NOTICES && self.report.notices.last() != Some(&words) {
            self.report.notices.push(words);
        }
    }

    /// The next message; `None` when none came in time.
    async fn message(&mut self, deadline: Instant) -> Result<Option<Bytes>, String> {
        tokio::select! {
            biased;
            // First, or a relay that never pauses would never time out.
            () = time::sleep_until(deadline) => Ok(None),
            message = self.connection.next() => match message {
                Some(Ok(message)) => Ok(Some(message.payload)),
                Some(Err(error)) => {
                    let code = error.close_code().unwrap_or(CloseCode::Normal);
                    let words = error.to_string();
                    self.connection.close(code, "").await;
                    Err(words)
                }
                None => Err("the relay closed the connection".to_owned()),
            },
        }
    }

    async fn say(&mut self, message: &ClientMessage<'_>) -> Result<(), String> {
        let mut bytes = Vec::new();
        self.codec.encode_client(message, &mut bytes).map_err(|error| error.to_string())?;
        let sent = async {
            self.connection.feed(Bytes::from(bytes)).await?;
            self.connection.flush().await
        };
        match time::timeout(self.task.patience, sent).await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err("the relay does not read".to_owned()),
        }
    }
}

async fn stop(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await.is_ok();
}

/// The `created_at` of an invalid event for the subscription of this name: `None` for another
/// message, `Some(None)` if the time cannot be read. Text larger than any event is not parsed,
/// because a tree of values takes many times its bytes.
fn time_of_event(payload: &[u8], name: &str) -> Option<Option<i64>> {
    if payload.len() > MAX_RECORD_BYTES {
        return Some(None);
    }
    let message: Value = serde_json::from_slice(payload).ok()?;
    let of_page = message[0] == "EVENT" && message[1] == name;
    of_page.then(|| message[2]["created_at"].as_i64())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    New,
    Duplicate,
    Rejected,
}
