//! A conversation with a relay in plain NIP-01 JSON: messages, their answers, and a bound on how long
//! to wait.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{HashMap, HashSet},
    rc::Rc,
    time::Duration,
};

use codecs::{ClientMessage, Codec, Event, Filter, Format, RelayMessage, hex, quoted};
use corpus::Keys;
use futures::FutureExt;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout, timeout_at},
};
use wire::{CloseCode, Compression, Connection, Endpoint, Message, Offer, WireError, WireLimits};

use super::answers::Answer;
use crate::sockets::driver;
use client::{
    auth,
    meaning::{Interpreter, Meaning, Verdict},
};

/// How long an answer may follow a NOTICE, which names nothing that it answers.
const AFTER_NOTICE: Duration = Duration::from_secs(2);

/// Pauses after a refusal of the rate, each before another try.
const PAUSES_MS: [u64; 4] = [50, 1_000, 2_000, 4_000];

/// Answers and events that are remembered of a connection.
pub(super) const MOST_HEARD: usize = 10_000;

/// The author of AUTH and of most events, as an index of the peer's keys.
pub(super) const FIRST: usize = 0;

/// The longest that an answer is about: an event's id in hex.
const LONGEST_ABOUT: usize = 64;

/// The subscription that stays open.
const LIVE: &str = "doctor-live";

/// The relay to talk to, and what its conversations share.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) relay: Endpoint,
    /// The keys of its authors, and the zero bits of the ids of their events (NIP-13).
    pub(super) keys: Keys,
    pub(super) work_bits: u8,
    /// How long the relay may be silent while answers are missing.
    pub(super) patience: Duration,
    /// The first refusal of the rate, in the relay's words.
    pub(super) rate: RefCell<Option<String>>,
}

/// What came on a connection.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The first answer to each message, by its event's id in hex or its subscription.
    answers: HashMap<String, Answer>,
    /// Stored events.
    pub(super) stored: HashSet<[u8; 32]>,
    /// Deliveries to the subscription that stays.
    pub(super) live: HashSet<[u8; 32]>,
    pub(super) challenge: Option<String>,
    /// The first message that no NIP knows, in the relay's words.
    pub(super) foreign: Option<String>,
    /// The first NOTICE since a message was sent.
    notice: Option<(String, Instant)>,
    ended: Option<String>,
}

/// One connection, made again when the relay ends it.
#[derive(Debug)]
pub(super) struct Talk {
    peer: Rc<Peer>,
    codec: &'static dyn Codec,
    interpreter: Interpreter,
    link: Connection,
    pub(super) heard: Heard,
    subscriptions: usize,
    /// Whether the subscription that stays was opened.
    pub(super) listens: bool,
    /// Whether pauses did not help.
    gave_up: bool,
    /// Whether the relay accepted the answer to its challenge.
    pub(super) proven: bool,
}

impl Talk {
    pub(super) async fn open(peer: &Rc<Peer>) -> Result<Talk, WireError> {
        let codec = Format::JSON.spec().library;
        let offer = Offer { formats: vec![Format::JSON], batched: false, compression: Compression::None };
        let link = peer.relay.connect(&offer, &WireLimits::default()).await?;
        Ok(Talk {
            peer: Rc::clone(peer),
            codec,
            interpreter: Interpreter::new(codec),
            link,
            heard: Heard::default(),
            subscriptions: 0,
            listens: false,
            gave_up: false,
            proven: false,
        })
    }

    /// Sends messages together, because a relay may answer late, and waits for the answer to each.
    /// A refusal of the rate is no answer: the message is sent again after a pause. One that ended the
    /// connection shows alone.
    pub(super) async fn ask(&mut self, messages: &[ClientMessage<'_>]) -> Vec<Answer> {
        let mut answers = self.ask_once(messages).await;
        for (message, answer) in messages.iter().zip(&mut answers) {
            let one = std::slice::from_ref(message);
            if messages.len() > 1 && matches!(answer, Answer::Ended(_)) {
                answer.clone_from(&self.ask_once(one).await[0]);
            }
            for pause_ms in PAUSES_MS {
                let Some(said) = answer.about_rate().filter(|_| !self.gave_up) else { break };
                self.peer.rate.borrow_mut().get_or_insert_with(|| said.to_owned());
                sleep(Duration::from_millis(pause_ms)).await;
                answer.clone_from(&self.ask_once(one).await[0]);
            }
            self.gave_up |= answer.about_rate().is_some();
            if answer.about_rate().is_some_and(|said| said.contains("rate-limited")) {
                *answer = Answer::NotAsked;
            }
        }
        answers
    }

    async fn ask_once(&mut self, messages: &[ClientMessage<'_>]) -> Vec<Answer> {
        self.read_on();
        if self.heard.ended.is_some() {
            match Talk::open(&self.peer).await {
                Ok(anew) => *self = Talk { gave_up: self.gave_up, subscriptions: self.subscriptions, ..anew },
                Err(error) => return vec![Answer::Ended(quoted(&error.to_string())); messages.len()],
            }
        }
        let about: Vec<Option<String>> = messages.iter().map(about).collect();
        self.heard.notice = None;
        about.iter().flatten().for_each(|about| _ = self.heard.answers.remove(about));
        let (mut came, mut deadline) = (0, Instant::now() + self.peer.patience);
        // One that reads nothing is as one that says nothing.
        timeout_at(deadline, self.say(messages)).await.ok();
        loop {
            let answer = |about: &Option<String>| self.heard.answers.get(about.as_ref()?).cloned();
            let answers: Vec<_> = about.iter().map(answer).collect();
            // Of several messages it may be about any.
            let notice = self.heard.notice.as_ref().filter(|_| messages.len() == 1);
            let otherwise = match (&self.heard.ended, notice) {
                (Some(_), Some((said, _))) | (Some(said), None) => Answer::Ended(said.clone()),
                (None, Some((said, _))) => Answer::Refused(said.clone()),
                (None, None) => Answer::Silent,
            };
            let now = answers.iter().flatten().count();
            if now > came {
                (came, deadline) = (now, Instant::now() + self.peer.patience);
            }
            let until = notice.map_or(deadline, |(_, at)| deadline.min(*at + AFTER_NOTICE));
            let is_over = came == messages.len() || matches!(otherwise, Answer::Ended(_));
            let next = if is_over { None } else { timeout_at(until, self.link.next()).await.ok() };
            let Some(message) = next else {
                return answers.into_iter().map(|one| one.unwrap_or_else(|| otherwise.clone())).collect();
            };
            self.hear(message);
        }
    }

    /// Sends messages. After an error the relay's reason is still to be read.
    async fn say(&mut self, messages: &[ClientMessage<'_>]) {
        for message in messages {
            let mut bytes = Vec::new();
            if self.codec.encode_client(message, &mut bytes).is_err()
                || self.link.feed(bytes.into()).await.is_err()
            {
                return;
            }
        }
        self.link.flush().await.ok();
    }

    /// Takes what has come.
    pub(super) fn read_on(&mut self) {
        while self.heard.ended.is_none()
            && let Some(message) = self.link.next().now_or_never()
        {
            self.hear(message);
        }
    }

    fn hear(&mut self, message: Option<Result<Message, WireError>>) {
        match message {
            Some(Ok(message)) => self.heard.take(&self.interpreter, &message.payload),
            Some(Err(error)) => self.heard.ended = Some(quoted(&error.to_string())),
            None => self.heard.ended = Some("without a reason".to_owned()),
        }
    }

    pub(super) async fn publish(&mut self, events: &[Event<'static>]) -> Vec<Answer> {
        let messages: Vec<_> =
            events.iter().map(|event| ClientMessage::Event(Cow::Borrowed(event))).collect();
        self.ask(&messages).await
    }

    /// Asks for stored events, and ends the subscription.
    pub(super) async fn request(&mut self, filter: Filter) -> Answer {
        self.requests(1, &filter).await.remove(0)
    }

    /// Asks the same several times, and ends the subscriptions after the last answer.
    pub(super) async fn requests(&mut self, count: usize, filter: &Filter) -> Vec<Answer> {
        let from = self.subscriptions;
        self.subscriptions += count;
        let names: Vec<String> = (from..self.subscriptions).map(|n| format!("doctor-{n}")).collect();
        let request =
            |name| ClientMessage::Req { subscription: Cow::Borrowed(name), filters: vec![filter.clone()] };
        let answers = self.ask(&names.iter().map(|name| request(name)).collect::<Vec<_>>()).await;
        let close = |name: &String| ClientMessage::Close { subscription: Cow::Owned(name.clone()) };
        self.say(&names.iter().map(close).collect::<Vec<_>>()).await;
        answers
    }

    /// Opens a reconciliation by this message, and ends it.
    pub(super) async fn reconcile(&mut self, filter: Filter, message: &[u8]) -> Answer {
        let name = || Cow::Borrowed("doctor-neg");
        let open = ClientMessage::NegOpen { subscription: name(), filter, message: message.into() };
        let answer = self.ask(&[open]).await.remove(0);
        self.say(&[ClientMessage::NegClose { subscription: name() }]).await;
        answer
    }

    /// Opens the subscription that stays.
    pub(super) async fn listen(&mut self, filter: Filter) {
        let request = ClientMessage::Req { subscription: LIVE.into(), filters: vec![filter] };
        self.listens = self.ask(&[request]).await == [Answer::Taken];
    }

    /// Ends the subscription that stays.
    pub(super) async fn stop_listening(&mut self) {
        self.say(&[ClientMessage::Close { subscription: LIVE.into() }]).await;
    }

    /// Asks for those of these events that have not come; whether the relay answered.
    pub(super) async fn ask_back(&mut self, all: &[&Event<'_>]) -> bool {
        self.read_on();
        let missing = all.iter().map(|event| event.id).filter(|id| !self.heard.stored.contains(id));
        let ids: Vec<_> = missing.collect();
        ids.is_empty() || self.request(Filter { ids: Some(ids), ..Filter::default() }).await == Answer::Taken
    }

    /// Answers the relay's challenge (NIP-42); [`Answer::NotAsked`] without one.
    pub(super) async fn authenticate(&mut self) -> Answer {
        let Some(challenge) = self.heard.challenge.clone() else { return Answer::NotAsked };
        let mut event = auth::proof(&self.peer.relay.url().to_string(), &challenge, now_s());
        self.peer.keys.sign(&mut event, FIRST, 0);
        let answer = self.ask(&[ClientMessage::Auth(Cow::Owned(event))]).await.remove(0);
        self.proven = answer == Answer::Taken;
        answer
    }

    pub(super) async fn close(mut self) {
        timeout(AFTER_NOTICE, self.link.close(CloseCode::Normal, "")).await.ok();
    }
}

impl Peer {
    /// Signs an event by the key of this author. Its work is done beside the runtime: one that ends
    /// leaves one event to be finished, at most.
    pub(super) async fn sign(&self, mut event: Event<'static>, author: usize) -> Event<'static> {
        let (keys, bits) = (self.keys.clone(), self.work_bits);
        let signing = spawn_blocking(move || {
            keys.sign(&mut event, author, bits);
            event
        });
        signing.await.expect("signing does not panic")
    }
}

/// What the answer to a message is about; `None` of a message without an answer.
fn about(message: &ClientMessage<'_>) -> Option<String> {
    match message {
        ClientMessage::Event(event) | ClientMessage::Auth(event) => Some(hex::encode(&event.id)),
        ClientMessage::Req { subscription, .. } | ClientMessage::NegOpen { subscription, .. } => {
            Some(subscription.to_string())
        }
        _ => None,
    }
}

impl Heard {
    fn take(&mut self, interpreter: &Interpreter, payload: &[u8]) {
        let message = match interpreter.read(payload) {
            Meaning::Message(message) | Meaning::Extended(message) => message,
            Meaning::Foreign | Meaning::Undecodable(_) => {
                self.foreign.get_or_insert_with(|| quoted(&String::from_utf8_lossy(payload)));
                return;
            }
        };
        let refused = |text: &str| Answer::Refused(quoted(text));
        match message {
            RelayMessage::Ok { id, accepted, text } => {
                let answer = match Verdict::from_ok(accepted, &text) {
                    Verdict::Refused => refused(&text),
                    _ => Answer::Taken,
                };
                self.answer(hex::encode(&id), answer);
            }
            RelayMessage::Eose { subscription, .. } | RelayMessage::NegMsg { subscription, .. } => {
                self.answer(subscription.into_owned(), Answer::Taken);
            }
            RelayMessage::Closed { subscription, text } | RelayMessage::NegErr { subscription, text } => {
                self.answer(subscription.into_owned(), refused(&text));
            }
            RelayMessage::Event { subscription, event } => {
                let heard = if subscription == LIVE { &mut self.live } else { &mut self.stored };
                if heard.len() < MOST_HEARD {
                    heard.insert(event.id);
                }
            }
            RelayMessage::Auth { challenge } => self.challenge = Some(challenge.into_owned()),
            RelayMessage::Notice { text } => {
                self.notice.get_or_insert_with(|| (format!("NOTICE {}", quoted(&text)), Instant::now()));
            }
            RelayMessage::Events { .. } | RelayMessage::Count { .. } => {}
        }
    }

    fn answer(&mut self, about: String, answer: Answer) {
        if about.len() <= LONGEST_ABOUT && self.answers.len() < MOST_HEARD {
            self.answers.entry(about).or_insert(answer);
        }
    }
}

/// Seconds since 1970.
pub(super) fn now_s() -> i64 {
    i64::try_from(driver::unix_s()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_what_nobody_asked_take_no_memory() {
        let (mut heard, interpreter) = (Heard::default(), Interpreter::new(Format::JSON.spec().library));
        for name in ["x".repeat(1 << 20), "doctor-7".to_owned()] {
            heard.take(&interpreter, format!(r#"["EOSE","{name}"]"#).as_bytes());
            heard.take(&interpreter, format!(r#"["CLOSED","{name}","no"]"#).as_bytes());
        }
        assert_eq!(heard.answers, [("doctor-7".to_owned(), Answer::Taken)].into());
    }
}
