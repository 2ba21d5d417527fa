//! A conversation with a relay in plain NIP-01 JSON: messages, their answers, and a bound on how long
//! to wait.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    hash::BuildHasher,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use codecs::{ClientMessage, Codec, Event, Filter, Format, KindClass, RelayMessage, hex, quoted};
use corpus::Keys;
use program::report;
use tokio::{
    sync::{Notify, mpsc},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use wire::{CloseCode, Compression, Connection, Endpoint, Offer, WireLimits};

use super::{TELL_EVERY, answers::Answer};
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
    /// Whether nobody is told how far work is.
    pub(super) quiet: bool,
    /// How many events are signed, and when that was last told.
    pub(super) signed: Cell<(u64, Instant)>,
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
    /// The newest stored event by a hash of what it replaces, seconds since 1970: a relay's own words
    /// may be long.
    newest: HashMap<u64, i64>,
    /// Deliveries to the subscription that stays.
    pub(super) live: HashSet<[u8; 32]>,
    /// Whether that subscription was opened.
    pub(super) listens: bool,
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
    heard: Arc<(Mutex<Heard>, Notify)>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    carrier: JoinHandle<()>,
    subscriptions: usize,
    /// Whether pauses did not help.
    gave_up: bool,
    /// Whether the relay accepted the answer to its challenge.
    pub(super) proven: bool,
}

impl Talk {
    pub(super) async fn open(peer: &Rc<Peer>) -> Result<Talk, wire::WireError> {
        let codec = Format::JSON.spec().library;
        let offer = Offer { formats: vec![Format::JSON], batched: false, compression: Compression::None };
        let link = peer.relay.connect(&offer, &WireLimits::default()).await?;
        let heard = Arc::<(Mutex<Heard>, Notify)>::default();
        let (outgoing, to_send) = mpsc::unbounded_channel();
        let carrier = tokio::spawn(carry(link, to_send, Interpreter::new(codec), Arc::clone(&heard)));
        let peer = Rc::clone(peer);
        Ok(Talk { peer, codec, heard, outgoing, carrier, subscriptions: 0, gave_up: false, proven: false })
    }

    pub(super) fn heard(&self) -> MutexGuard<'_, Heard> {
        lock(&self.heard.0)
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
        if self.heard().ended.is_some() {
            match Talk::open(&self.peer).await {
                Ok(anew) => *self = Talk { gave_up: self.gave_up, subscriptions: self.subscriptions, ..anew },
                Err(error) => return vec![Answer::Ended(quoted(&error.to_string())); messages.len()],
            }
        }
        let about: Vec<Option<String>> = messages.iter().map(about).collect();
        {
            let mut heard = self.heard();
            heard.notice = None;
            about.iter().flatten().for_each(|about| _ = heard.answers.remove(about));
        }
        messages.iter().for_each(|message| self.say(message));
        let (mut came, mut deadline) = (0, Instant::now() + self.peer.patience);
        loop {
            let (answers, otherwise) = {
                let heard = self.heard();
                let answer = |about: &Option<String>| heard.answers.get(about.as_ref()?).cloned();
                let answers: Vec<_> = about.iter().map(answer).collect();
                // Of several messages it may be about any.
                let notice = heard.notice.as_ref().filter(|_| messages.len() == 1);
                if let Some((_, at)) = notice {
                    deadline = deadline.min(*at + AFTER_NOTICE);
                }
                let otherwise = match (&heard.ended, notice) {
                    (Some(_), Some((said, _))) | (Some(said), None) => Answer::Ended(said.clone()),
                    (None, Some((said, _))) => Answer::Refused(said.clone()),
                    (None, None) => Answer::Silent,
                };
                (answers, otherwise)
            };
            let now = answers.iter().flatten().count();
            if now > came {
                (came, deadline) = (now, Instant::now() + self.peer.patience);
            }
            let is_over = came == messages.len() || matches!(otherwise, Answer::Ended(_));
            if is_over || timeout_at(deadline, self.heard.1.notified()).await.is_err() {
                return answers
                    .into_iter()
                    .map(|answer| answer.unwrap_or_else(|| otherwise.clone()))
                    .collect();
            }
        }
    }

    /// Sends a message.
    pub(super) fn say(&self, message: &ClientMessage<'_>) {
        let mut bytes = Vec::new();
        if self.codec.encode_client(message, &mut bytes).is_ok() {
            // A connection that ended has no use for it.
            self.outgoing.send(bytes).ok();
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
        for name in &names {
            self.say(&ClientMessage::Close { subscription: name.into() });
        }
        answers
    }

    /// Opens the subscription that stays.
    pub(super) async fn listen(&mut self, filter: Filter) {
        let request = ClientMessage::Req { subscription: LIVE.into(), filters: vec![filter] };
        let answers = self.ask(&[request]).await;
        self.heard().listens = answers == [Answer::Taken];
    }

    /// Ends the subscription that stays.
    pub(super) fn stop_listening(&self) {
        self.say(&ClientMessage::Close { subscription: LIVE.into() });
    }

    /// Asks for those of these events that have not come; whether the relay answered.
    pub(super) async fn ask_back(&mut self, all: &[&Event<'_>]) -> bool {
        let missing = |heard: &Heard| all.iter().copied().filter(|event| !heard.has(event)).collect();
        let of: Vec<&Event<'_>> = missing(&self.heard());
        if of.is_empty() {
            return true;
        }
        let ids = Some(of.iter().map(|event| event.id).collect());
        let answer = self.request(Filter { ids, ..Filter::default() }).await;
        let mut of: Vec<&Event<'_>> = missing(&self.heard());
        of.retain(|event| event.class() != KindClass::Regular);
        if !of.is_empty() {
            // A newer one may have replaced it.
            let (authors, kinds) = of.iter().map(|event| (event.pubkey, event.kind)).unzip();
            self.request(Filter { authors: Some(authors), kinds: Some(kinds), ..Filter::default() }).await;
        }
        answer == Answer::Taken
    }

    /// Answers the relay's challenge (NIP-42); [`Answer::NotAsked`] without one.
    pub(super) async fn authenticate(&mut self) -> Answer {
        let Some(challenge) = self.heard().challenge.clone() else { return Answer::NotAsked };
        let mut event = auth::proof(&self.peer.relay.url().to_string(), &challenge, now_s());
        self.peer.keys.sign(&mut event, FIRST, 0);
        let answer = self.ask(&[ClientMessage::Auth(Cow::Owned(event))]).await.remove(0);
        self.proven = answer == Answer::Taken;
        answer
    }

    pub(super) async fn close(self) {
        drop(self.outgoing);
        timeout(AFTER_NOTICE, self.carrier).await.ok();
    }
}

impl Peer {
    /// Signs an event by the key of this author. Its work is done beside the runtime: one that ends
    /// leaves one event to be finished, at most.
    pub(super) async fn sign(&self, mut event: Event<'static>, author: usize) -> Event<'static> {
        let (keys, bits) = (self.keys.clone(), self.work_bits);
        let mut signing = spawn_blocking(move || {
            keys.sign(&mut event, author, bits);
            event
        });
        loop {
            let (events, told) = self.signed.get();
            tokio::select! {
                signed = &mut signing => {
                    self.signed.set((events + 1, told));
                    return signed.expect("signing does not panic");
                }
                () = sleep_until(told + TELL_EVERY), if bits > 0 && !self.quiet => {
                    report(&format!("proof of work of {bits} bits: {events} events of the rehearsal"));
                    self.signed.set((events, Instant::now()));
                }
            }
        }
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Carries messages both ways, and answers pings, until either end closes the connection.
async fn carry(
    mut link: Connection,
    mut to_send: mpsc::UnboundedReceiver<Vec<u8>>,
    interpreter: Interpreter,
    heard: Arc<(Mutex<Heard>, Notify)>,
) {
    let mut is_broken = false;
    let why = loop {
        tokio::select! {
            message = link.next() => match message {
                Some(Ok(message)) => {
                    lock(&heard.0).take(&interpreter, &message.payload);
                    heard.1.notify_one();
                }
                Some(Err(error)) => break error.to_string(),
                None => break "without a reason".to_owned(),
            },
            // After an error the relay's reason is still to be read.
            payload = to_send.recv(), if !is_broken => match payload {
                Some(payload) => is_broken = send(&mut link, payload).await.is_err(),
                None => return link.close(CloseCode::Normal, "").await,
            }
        }
    };
    lock(&heard.0).ended = Some(quoted(&why));
    heard.1.notify_one();
}

async fn send(link: &mut Connection, payload: Vec<u8>) -> Result<(), wire::WireError> {
    link.feed(payload.into()).await?;
    link.flush().await
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
                let is_live = subscription == LIVE;
                let replaced = self.replaced_by(&event);
                let heard = if is_live { &mut self.live } else { &mut self.stored };
                if heard.len() < MOST_HEARD {
                    heard.insert(event.id);
                    if !is_live && event.class() != KindClass::Regular {
                        let newest = self.newest.entry(replaced).or_insert(event.created_at);
                        *newest = event.created_at.max(*newest);
                    }
                }
            }
            RelayMessage::Auth { challenge } => self.challenge = Some(challenge.into_owned()),
            RelayMessage::Notice { text } => {
                self.notice.get_or_insert_with(|| (format!("NOTICE {}", quoted(&text)), Instant::now()));
            }
            RelayMessage::Events { .. } | RelayMessage::Count { .. } => {}
        }
    }

    /// Whether this event came as stored, or one that replaces it.
    pub(super) fn has(&self, event: &Event<'_>) -> bool {
        let replaces = |newest: &i64| event.class() != KindClass::Regular && *newest >= event.created_at;
        self.stored.contains(&event.id) || self.newest.get(&self.replaced_by(event)).is_some_and(replaces)
    }

    /// What a newer event replaces: author, kind and `d` value (NIP-01).
    fn replaced_by(&self, event: &Event<'_>) -> u64 {
        self.newest.hasher().hash_one((event.pubkey, event.kind, event.address()))
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
