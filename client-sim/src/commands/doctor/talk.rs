//! A conversation with a relay: messages, their answers, and a bound on how long to wait.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashSet},
    rc::Rc,
    time::Duration,
};

use client::{
    auth,
    meaning::{Interpreter, Meaning, Verdict},
};
use codecs::{ClientMessage, Codec, Event, Filter, Format, KindClass, RelayMessage, TagFilter, hex, quoted};
use corpus::Keys;
use tokio::{
    sync::{mpsc, watch},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout, timeout_at},
};
use wire::{CloseCode, Compression, Connection, Endpoint, Offer, WireError, WireLimits};

use super::answers::RATE;
use crate::sockets::driver;

/// How long an answer may follow a NOTICE, which names nothing that it answers.
const AFTER_NOTICE: Duration = Duration::from_secs(2);

/// Pauses after a refusal of the rate, each before another try.
const PAUSES_MS: [u64; 4] = [50, 1_000, 2_000, 4_000];

/// The author of AUTH and of most events, as an index of the peer's keys.
pub(super) const FIRST: usize = 0;

/// An ephemeral kind, which no relay stores (NIP-01) and no scenario asks for.
pub(super) const EPHEMERAL: u16 = 29_999;

/// The subscription for live events.
const LIVE: &str = "doctor-live";

/// The relay to talk to, and what its conversations share.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) relay: Endpoint,
    /// The keys of its authors, and the zero bits of the ids of their events (NIP-13).
    keys: Keys,
    work_bits: u8,
    /// How long the relay may be silent while answers are missing.
    pub(super) patience: Duration,
    /// The first refusal of the rate, in the relay's words, and whether pauses did not help.
    pub(super) rate: RefCell<Option<String>>,
    gave_up: Cell<bool>,
    /// The signed events that may be stored, by author.
    pub(super) signed: RefCell<BTreeMap<usize, Vec<[u8; 32]>>>,
}

impl Peer {
    pub(super) fn new(relay: Endpoint, (keys, work_bits): (Keys, u8), patience: Duration) -> Rc<Peer> {
        let (rate, gave_up, signed) = <(RefCell<_>, Cell<_>, RefCell<_>)>::default();
        Rc::new(Peer { relay, keys, work_bits, patience, rate, gave_up, signed })
    }

    /// Signs an event by the key of this author. Its work is done beside the runtime: one that ends
    /// leaves one event to be finished, at most.
    pub(super) async fn sign(&self, mut event: Event<'static>, author: usize) -> Event<'static> {
        let (keys, bits) = (self.keys.clone(), self.work_bits);
        let signing = spawn_blocking(move || {
            keys.sign(&mut event, author, bits);
            event
        });
        let event = signing.await.expect("signing does not panic");
        if is_kept(&event) {
            self.signed.borrow_mut().entry(author).or_default().push(event.id);
        }
        event
    }
}

/// The answer to one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// As NIP-01 has it: OK true, or EOSE.
    Taken,
    /// OK false, CLOSED or NOTICE, with the relay's words.
    Refused(String),
    /// The relay refused the rate alone.
    Limited,
    /// The connection ended.
    Ended(String),
    /// Nothing came in time.
    Silent,
}

impl Answer {
    /// Why it is not [`Answer::Taken`]; `None` also where the rate alone was refused.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            Answer::Taken | Answer::Limited => None,
            Answer::Refused(text) => Some(format!("\"{text}\"")),
            Answer::Ended(text) => Some(format!("the connection ended: {text}")),
            Answer::Silent => Some("the relay was silent".to_owned()),
        }
    }

    /// The relay's words where it refuses not the message but the rate.
    fn about_rate(&self) -> Option<&str> {
        let Answer::Refused(said) = self else { return None };
        let words = said.strip_prefix("NOTICE ").unwrap_or(said);
        RATE.iter().any(|prefix| words.starts_with(prefix)).then_some(said)
    }
}

/// What came on a connection. Only what is waited for is remembered.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What the last messages were about, an event's id in hex or a subscription, and the first answers.
    answers: BTreeMap<String, Option<Answer>>,
    /// Events of the rehearsal, and what of them came stored and live.
    published: Vec<Event<'static>>,
    pub(super) stored: HashSet<[u8; 32]>,
    pub(super) live: HashSet<[u8; 32]>,
    pub(super) challenge: Option<String>,
    /// The first message that no NIP knows, in the relay's words.
    pub(super) foreign: Option<String>,
    /// The first NOTICE since a message was sent.
    notice: Option<String>,
    ended: Option<String>,
}

/// One connection, made again when the relay ends it.
#[derive(Debug)]
pub(super) struct Talk {
    peer: Rc<Peer>,
    codec: &'static dyn Codec,
    pub(super) heard: watch::Sender<Heard>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    carrier: JoinHandle<()>,
    requests: usize,
    /// Whether the relay opened the subscription for live events.
    pub(super) listens: bool,
    /// Whether the relay accepted the answer to its challenge.
    pub(super) proven: bool,
}

impl Talk {
    pub(super) async fn open(peer: &Rc<Peer>) -> Result<Talk, WireError> {
        let offer = Offer { formats: vec![Format::JSON], batched: false, compression: Compression::None };
        Ok(Talk::over(peer, peer.relay.connect(&offer, &WireLimits::default()).await?))
    }

    /// A conversation in the format of the connection.
    pub(super) fn over(peer: &Rc<Peer>, link: Connection) -> Talk {
        let (peer, codec) = (Rc::clone(peer), link.agreement().format.spec().library);
        let heard = watch::Sender::new(Heard::default());
        let (outgoing, to_send) = mpsc::unbounded_channel();
        let carrier = tokio::spawn(carry(link, to_send, Interpreter::new(codec), heard.clone()));
        Talk { peer, codec, heard, outgoing, carrier, requests: 0, listens: false, proven: false }
    }

    /// Sends a message, and waits for an answer about this subscription or id in hex. A refusal of the rate
    /// is no answer: the message is sent again after a pause.
    pub(super) async fn ask(&mut self, about: &str, message: &ClientMessage<'_>) -> Answer {
        let mut answer = self.ask_once(about, message).await;
        for pause_ms in PAUSES_MS {
            let Some(said) = answer.about_rate().filter(|_| !self.peer.gave_up.get()) else { break };
            self.peer.rate.borrow_mut().get_or_insert_with(|| said.to_owned());
            sleep(Duration::from_millis(pause_ms)).await;
            answer = self.ask_once(about, message).await;
        }
        let Some(said) = answer.about_rate() else { return answer };
        self.peer.gave_up.set(true);
        if said.contains("rate-limited") { Answer::Limited } else { answer }
    }

    async fn ask_once(&mut self, about: &str, message: &ClientMessage<'_>) -> Answer {
        if let Err(error) = self.reopen().await {
            return Answer::Ended(quoted(&error.to_string()));
        }
        self.wait_for([about]);
        self.say(message);
        let is_over = |heard: &Heard| heard.unanswered() == 0 || heard.ended.is_some();
        let mut hears = self.heard.subscribe();
        let begun = hears.wait_for(|heard| is_over(heard) || heard.notice.is_some());
        if timeout(self.peer.patience, begun).await.is_ok() {
            timeout(AFTER_NOTICE, hears.wait_for(is_over)).await.ok();
        }
        let heard = self.heard.borrow();
        let answer = heard.answers.get(about).cloned().flatten();
        answer.unwrap_or_else(|| match (&heard.ended, &heard.notice) {
            (Some(why), notice) => Answer::Ended(notice.as_ref().unwrap_or(why).clone()),
            (None, Some(said)) => Answer::Refused(said.clone()),
            (None, None) => Answer::Silent,
        })
    }

    /// Makes the connection again if it ended.
    async fn reopen(&mut self) -> Result<(), WireError> {
        if self.heard.borrow().ended.is_some() {
            let anew = Talk::open(&self.peer).await?;
            anew.look_for(&self.heard.borrow().published);
            *self = anew;
        }
        Ok(())
    }

    /// Waits from now on for answers about these, and for no others.
    fn wait_for<'a>(&self, about: impl IntoIterator<Item = &'a str>) {
        let answers = about.into_iter().map(|about| (about.to_owned(), None)).collect();
        self.heard.send_modify(|heard| (heard.answers, heard.notice) = (answers, None));
    }

    /// Sends a message.
    pub(super) fn say(&self, message: &ClientMessage<'_>) {
        let mut bytes = Vec::new();
        if self.codec.encode_client(message, &mut bytes).is_ok() {
            // A connection that ended has no use for it.
            self.outgoing.send(bytes).ok();
        }
    }

    pub(super) async fn publish(&mut self, event: &Event<'static>) -> Answer {
        self.ask(&hex::encode(&event.id), &ClientMessage::Event(Cow::Borrowed(event))).await
    }

    /// Publishes events together, because a relay may answer late, or not at all. What it refused for the
    /// rate alone, or left open when it ended the connection, is published again by itself.
    pub(super) async fn publish_all(&mut self, events: &[Event<'static>]) -> Vec<Answer> {
        let ids: Vec<String> = events.iter().map(|event| hex::encode(&event.id)).collect();
        // Without a connection each event fails by itself.
        self.reopen().await.ok();
        self.wait_for(ids.iter().map(String::as_str));
        for event in events {
            self.say(&ClientMessage::Event(Cow::Borrowed(event)));
        }
        let (mut hears, mut open) = (self.heard.subscribe(), events.len());
        while open > 0 {
            let came = hears.wait_for(move |heard| heard.ended.is_some() || heard.unanswered() < open);
            let Ok(Ok(heard)) = timeout(self.peer.patience, came).await else { break };
            open = if heard.ended.is_some() { 0 } else { heard.unanswered() };
        }
        let (first, is_ended) = {
            let heard = self.heard.borrow();
            (heard.answers.clone(), heard.ended.is_some())
        };
        let mut answers = Vec::with_capacity(events.len());
        for (event, id) in events.iter().zip(&ids) {
            answers.push(match first.get(id).cloned().flatten() {
                Some(answer) if answer.about_rate().is_none() => answer,
                None if !is_ended => Answer::Silent,
                _ => self.publish(event).await,
            });
        }
        answers
    }

    /// Asks for stored events, and ends the subscription.
    pub(super) async fn request(&mut self, filter: Filter) -> Answer {
        self.requests += 1;
        // An answer may come late.
        let name = format!("doctor-{}", self.requests);
        let answer = self.subscribe(&name, filter).await;
        self.unsubscribe(&name);
        answer
    }

    /// Opens a subscription that stays.
    pub(super) async fn subscribe(&mut self, name: &str, filter: Filter) -> Answer {
        self.ask(name, &ClientMessage::Req { subscription: name.into(), filters: vec![filter] }).await
    }

    pub(super) fn unsubscribe(&self, name: &str) {
        self.say(&ClientMessage::Close { subscription: name.into() });
    }

    /// Opens the subscription for live events.
    pub(super) async fn listen(&mut self, filter: Filter) {
        self.listens = self.subscribe(LIVE, filter).await == Answer::Taken;
    }

    /// Looks for these events from now on, and for no others.
    pub(super) fn look_for(&self, events: &[Event<'static>]) {
        self.heard.send_modify(|heard| heard.published = events.to_vec());
    }

    /// Ends that subscription once these events came by it, or at the deadline.
    pub(super) async fn stop_listening(&mut self, events: &[Event<'_>], deadline: Instant) {
        let came = |heard: &Heard| events.iter().all(|event| heard.live.contains(&event.id));
        if self.listens {
            timeout_at(deadline, self.heard.subscribe().wait_for(came)).await.ok();
            self.unsubscribe(LIVE);
        }
    }

    /// Answers the relay's challenge (NIP-42). Where none came yet, a restricted request may provoke it.
    /// `None` if no challenge came.
    pub(super) async fn authenticate(&mut self, restricted: &Filter) -> Option<Answer> {
        if self.heard.borrow().challenge.is_none() {
            self.request(restricted.clone()).await;
        }
        let challenge = self.heard.borrow().challenge.clone()?;
        let mut event = auth::proof(&self.peer.relay.url().to_string(), &challenge, now_s());
        self.peer.keys.sign(&mut event, FIRST, 0);
        let answer = self.ask(&hex::encode(&event.id), &ClientMessage::Auth(Cow::Borrowed(&event))).await;
        self.proven = answer == Answer::Taken;
        Some(answer)
    }

    pub(super) async fn close(self) {
        drop(self.outgoing);
        timeout(AFTER_NOTICE, self.carrier).await.ok();
    }
}

/// Carries messages both ways, and answers pings, until either end closes the connection.
async fn carry(
    mut link: Connection,
    mut to_send: mpsc::UnboundedReceiver<Vec<u8>>,
    interpreter: Interpreter,
    heard: watch::Sender<Heard>,
) {
    let mut is_broken = false;
    let why = loop {
        tokio::select! {
            message = link.next() => match message {
                Some(Ok(message)) => match interpreter.read(&message.payload) {
                    Meaning::Message(said) | Meaning::Extended(said) => heard.send_modify(|heard| heard.take(said)),
                    Meaning::Foreign => heard.send_modify(|heard| {
                        let words = || quoted(&String::from_utf8_lossy(&message.payload));
                        heard.foreign.get_or_insert_with(words);
                    }),
                    Meaning::Undecodable(error) => break format!("it sent what is no message: {error}"),
                },
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
    heard.send_modify(|heard| heard.ended = Some(quoted(&why)));
}

async fn send(link: &mut Connection, payload: Vec<u8>) -> Result<(), WireError> {
    link.feed(payload.into()).await?;
    link.flush().await
}

impl Heard {
    fn take(&mut self, message: RelayMessage<'_>) {
        let refused = |text: &str| Answer::Refused(quoted(text));
        let (about, answer) = match message {
            RelayMessage::Ok { id, accepted, text } => match Verdict::from_ok(accepted, &text) {
                Verdict::Refused => (hex::encode(&id), refused(&text)),
                _ => (hex::encode(&id), Answer::Taken),
            },
            RelayMessage::Eose { subscription, .. } | RelayMessage::NegMsg { subscription, .. } => {
                (subscription.into_owned(), Answer::Taken)
            }
            RelayMessage::Closed { subscription, text } | RelayMessage::NegErr { subscription, text } => {
                (subscription.into_owned(), refused(&text))
            }
            RelayMessage::Event { subscription, event } => {
                let came = if subscription == LIVE { &mut self.live } else { &mut self.stored };
                let of_it = self.published.iter().filter(|own| own.id == event.id || replaces(&event, own));
                return came.extend(of_it.map(|own| own.id));
            }
            RelayMessage::Auth { challenge } => {
                self.challenge = Some(challenge.into_owned());
                return;
            }
            RelayMessage::Notice { text } => {
                self.notice.get_or_insert_with(|| format!("NOTICE {}", quoted(&text)));
                return;
            }
            RelayMessage::Events { .. } | RelayMessage::Count { .. } => return,
        };
        if let Some(first) = self.answers.get_mut(&about) {
            first.get_or_insert(answer);
        }
    }

    fn unanswered(&self) -> usize {
        self.answers.values().filter(|answer| answer.is_none()).count()
    }
}

/// Whether an event is as new as one of its author, kind and `d` value, and stands for it (NIP-01).
fn replaces(newer: &Event<'_>, event: &Event<'_>) -> bool {
    let of = |event: &Event<'_>| (event.pubkey, event.kind);
    event.class() != KindClass::Regular
        && newer.created_at >= event.created_at
        && of(newer) == of(event)
        && newer.address() == event.address()
}

/// Whether a relay may store the event.
pub(super) fn is_kept(event: &Event<'_>) -> bool {
    event.class() != KindClass::Ephemeral
}

/// A filter that no event matches.
pub(super) fn nothing() -> Filter {
    let values = vec!["client-sim doctor: nothing has this".to_owned()];
    Filter {
        kinds: Some(vec![EPHEMERAL]),
        authors: Some(vec![[0x5a; 32]]),
        tags: vec![TagFilter { letter: 't', values }],
        limit: Some(1),
        ..Filter::default()
    }
}

/// Seconds since 1970.
pub(super) fn now_s() -> i64 {
    i64::try_from(driver::unix_s()).unwrap_or(i64::MAX)
}
