//! A conversation with a relay in plain NIP-01 JSON: one message, its answer, and a bound on how
//! long to wait.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    time::Duration,
};

use codecs::{ClientMessage, Codec, Event, Filter, Format, KindClass, RelayMessage, quoted};
use tokio::time::{Instant, sleep, timeout_at};
use wire::{CloseCode, Compression, Connection, Endpoint, Offer, WireLimits};

use super::answers::{Answer, Spent};
use crate::sockets::driver;
use client::{
    auth,
    meaning::{Interpreter, Meaning, Verdict},
};

/// How long a relay may take for one answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Unless it was slower before.
    pub(super) usual: Duration,
    /// For OK to the first event of a kind, and at most for any.
    pub(super) longest: Duration,
}

impl Patience {
    pub(super) const STANDING: Patience =
        Patience { usual: Duration::from_secs(3), longest: Duration::from_secs(10) };
}

/// How long an answer may follow a NOTICE, which names nothing that it answers: at least so long,
/// and so many times the slowest answer so far.
const AFTER_NOTICE: Duration = Duration::from_millis(300);
const SLOWEST_ANSWERS: u32 = 4;

/// Pauses after a refusal of the rate, each before another try.
const PAUSES_S: [u64; 3] = [1, 2, 4];

/// The pause before each event after a first refusal of the rate.
const PACE: Duration = Duration::from_millis(50);

/// Ids that are noted of a reply, and of live deliveries.
pub(super) const MAX_HEARD: usize = 1_000;

/// The subscription that stays open.
const LIVE: &str = "doctor-live";

/// The relay to talk to.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) relay: Endpoint,
    /// Words from which the throw-away keys of this conversation derive.
    pub(super) words: String,
    pub(super) patience: Patience,
}

/// Reply to a request.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Ids of the first events, at most [`MAX_HEARD`].
    pub(super) ids: Vec<[u8; 32]>,
    pub(super) answer: Answer,
}

/// One connection, made again when the relay ends it.
#[derive(Debug)]
pub(super) struct Talk {
    peer: Peer,
    codec: &'static dyn Codec,
    interpreter: Interpreter,
    link: Option<Connection>,
    /// How long the slowest answer took.
    slowest: Option<Duration>,
    challenge: Option<String>,
    subscriptions: u64,
    /// Events whose OK is missing, and the OKs that came while another answer was waited for.
    unanswered: HashSet<[u8; 32]>,
    answered: HashMap<[u8; 32], Answer>,
    /// Whether the relay took any event.
    published: bool,
    /// Whether pauses did not help.
    gave_up: bool,
    /// The first refusal of the rate, in the relay's words.
    pub(super) rate: Option<String>,
    pub(super) challenged: bool,
    /// Whether the relay accepted the answer to its challenge.
    pub(super) proven: bool,
    /// The first message that no NIP knows, in the relay's words.
    pub(super) foreign: Option<String>,
    /// Deliveries to the subscription that stays, at most [`MAX_HEARD`].
    pub(super) heard: HashSet<[u8; 32]>,
    pub(super) spent: Spent,
}

impl Talk {
    pub(super) async fn open(peer: &Peer) -> anyhow::Result<Talk> {
        let codec = Format::JSON.spec().library;
        let mut talk = Talk {
            peer: peer.clone(),
            codec,
            interpreter: Interpreter::new(codec),
            link: None,
            slowest: None,
            challenge: None,
            subscriptions: 0,
            unanswered: HashSet::new(),
            answered: HashMap::new(),
            published: false,
            gave_up: false,
            rate: None,
            challenged: false,
            proven: false,
            foreign: None,
            heard: HashSet::new(),
            spent: Spent::default(),
        };
        talk.connect().await?;
        Ok(talk)
    }

    async fn connect(&mut self) -> Result<(), wire::WireError> {
        let offer = Offer { formats: vec![Format::JSON], batched: false, compression: Compression::None };
        self.spent.connections += 1;
        (self.challenge, self.proven) = (None, false);
        let limits = WireLimits::default();
        self.link = Some(self.peer.relay.connect(&offer, &limits).await?);
        Ok(())
    }

    /// Signs an event by a throw-away key, one for each `author`.
    pub(super) fn sign(&self, event: &mut Event<'_>, author: &str) {
        corpus::sign_as(event, &format!("{} {author}", self.peer.words));
    }

    /// Publishes an event and waits for its OK. A refusal of the rate is no answer while others are
    /// accepted: the event is sent again after a pause.
    pub(super) async fn publish(&mut self, event: &Event<'_>) -> Answer {
        let publishing = async |talk: &mut Talk| {
            if talk.rate.is_some() {
                sleep(PACE).await;
            }
            let answer = match talk.send_event(event).await {
                Ok(()) => talk.answer_within(&event.id, talk.patience()).await,
                Err(answer) => answer,
            };
            Reply { answer, ..Reply::default() }
        };
        match self.patiently(publishing).await.answer {
            Answer::Refused(said) if self.published && said.starts_with("rate-limited") => Answer::NotAsked,
            answer => answer,
        }
    }

    /// Tries again after pauses, as long as the relay refuses the rate.
    async fn patiently(&mut self, mut once: impl AsyncFnMut(&mut Talk) -> Reply) -> Reply {
        let mut reply = once(self).await;
        for pause_s in PAUSES_S {
            let Some(said) = reply.answer.about_rate().filter(|_| !self.gave_up) else { return reply };
            self.rate.get_or_insert_with(|| said.to_owned());
            sleep(Duration::from_secs(pause_s)).await;
            reply = once(self).await;
        }
        self.gave_up |= reply.answer.about_rate().is_some();
        reply
    }

    /// Sends an event whose answer is read later, by [`Talk::late_answer_to`].
    pub(super) async fn send_event(&mut self, event: &Event<'_>) -> Result<(), Answer> {
        match event.class() {
            KindClass::Ephemeral => self.spent.ephemeral_events += 1,
            _ => self.spent.stored_events += 1,
        }
        self.unanswered.insert(event.id);
        self.send(&ClientMessage::Event(Cow::Borrowed(event))).await
    }

    /// Waits for the OK of an event until `deadline`, whatever else the relay says meanwhile.
    pub(super) async fn late_answer_to(&mut self, id: &[u8; 32], deadline: Instant) -> Answer {
        self.answer_within(id, Wait { deadline, gives_up_after_notice: false }).await
    }

    /// Until when a relay may take for what is sent now: usually, and at all.
    pub(super) fn deadlines(&self) -> (Instant, Instant) {
        (self.patience().deadline, Instant::now() + self.peer.patience.longest)
    }

    /// Whether the relay has not ended the connection.
    pub(super) fn is_open(&self) -> bool {
        self.link.is_some()
    }

    async fn answer_within(&mut self, id: &[u8; 32], wait: Wait) -> Answer {
        let answer = match self.answered.remove(id) {
            Some(answer) => answer,
            None => self.wait_within(wait, |message| answer_to(id, message)).await,
        };
        if answer != Answer::Silent {
            self.unanswered.remove(id);
        }
        self.published |= answer == Answer::Taken;
        answer
    }

    fn patience(&self) -> Wait {
        let Patience { usual, longest } = self.peer.patience;
        let patience = self.slowest.map_or(usual, |slowest| usual.max(SLOWEST_ANSWERS * slowest));
        Wait { deadline: Instant::now() + patience.min(longest), gives_up_after_notice: true }
    }

    /// Asks for stored events, waits for EOSE or CLOSED, and ends the subscription.
    pub(super) async fn request(&mut self, filter: Filter) -> Reply {
        let requesting = async |talk: &mut Talk| {
            let (name, reply) = talk.subscribe(filter.clone()).await;
            if reply.answer == Answer::Taken {
                talk.unsubscribe(&name).await;
            }
            reply
        };
        let mut reply = self.patiently(requesting).await;
        if reply.answer.about_rate().is_some() {
            reply.answer = Answer::NotAsked;
        }
        reply
    }

    /// Opens a subscription, and waits for its EOSE.
    pub(super) async fn subscribe(&mut self, filter: Filter) -> (String, Reply) {
        self.subscriptions += 1;
        let name = format!("doctor-{}", self.subscriptions);
        let reply = self.subscribe_as(&name, filter).await;
        (name, reply)
    }

    /// Opens the subscription that stays, whose deliveries are noted.
    pub(super) async fn listen(&mut self, filter: Filter) -> Answer {
        self.subscribe_as(LIVE, filter).await.answer
    }

    async fn subscribe_as(&mut self, name: &str, filter: Filter) -> Reply {
        let mut ids = Vec::new();
        let request = ClientMessage::Req { subscription: Cow::Borrowed(name), filters: vec![filter] };
        let answer = self.ask(&request, |message| match message {
            RelayMessage::Event { subscription, event } if *subscription == name => {
                if ids.len() < MAX_HEARD {
                    ids.push(event.id);
                }
                None
            }
            RelayMessage::Eose { subscription, .. } if *subscription == name => Some(Answer::Taken),
            RelayMessage::Closed { subscription, text } if *subscription == name => {
                Some(Answer::Refused(text.clone().into_owned()))
            }
            _ => None,
        });
        let answer = answer.await;
        Reply { ids, answer }
    }

    /// Ends a subscription.
    pub(super) async fn unsubscribe(&mut self, name: &str) {
        self.say(&ClientMessage::Close { subscription: Cow::Borrowed(name) }).await;
    }

    /// Sends a message that has no answer, such as the end of a subscription, which a connection
    /// that ended has not.
    pub(super) async fn say(&mut self, message: &ClientMessage<'_>) {
        self.send(message).await.ok();
    }

    /// Sends a message and waits for the answer that `is` recognises.
    pub(super) async fn ask(
        &mut self,
        message: &ClientMessage<'_>,
        is: impl FnMut(&RelayMessage<'_>) -> Option<Answer>,
    ) -> Answer {
        self.spent.requests += 1;
        match self.send(message).await {
            Ok(()) => self.wait_within(self.patience(), is).await,
            Err(answer) => answer,
        }
    }

    /// Answers pings until the relay ends the connection.
    pub(super) async fn idle(&mut self) {
        const LONG: Duration = Duration::from_secs(3_600);
        let wait = Wait { deadline: Instant::now() + LONG, gives_up_after_notice: false };
        self.wait_within(wait, |_| None).await;
    }

    /// Answers the relay's challenge (NIP-42); [`Answer::NotAsked`] without one.
    pub(super) async fn authenticate(&mut self) -> Answer {
        let Some(challenge) = self.challenge.clone() else { return Answer::NotAsked };
        let mut event = auth::proof(&self.peer.relay.url().to_string(), &challenge, now_s());
        self.sign(&mut event, "one");
        let answer = match self.send(&ClientMessage::Auth(Cow::Borrowed(&event))).await {
            Ok(()) => self.answer_within(&event.id, self.patience()).await,
            Err(answer) => answer,
        };
        self.proven = answer == Answer::Taken;
        answer
    }

    pub(super) async fn close(mut self) -> Spent {
        if let Some(mut link) = self.link.take() {
            link.close(CloseCode::Normal, "").await;
        }
        self.spent
    }

    async fn send(&mut self, message: &ClientMessage<'_>) -> Result<(), Answer> {
        if self.link.is_none() {
            self.connect().await.map_err(|error| Answer::Ended(error.to_string()))?;
        }
        let mut bytes = Vec::new();
        self.codec.encode_client(message, &mut bytes).map_err(|error| Answer::Refused(error.to_string()))?;
        let Some(link) = self.link.as_mut() else { return Err(Answer::Silent) };
        let sending = async {
            link.feed(bytes.into()).await?;
            link.flush().await
        };
        match timeout_at(Instant::now() + self.peer.patience.usual, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let why = self.ending(&error.to_string()).await;
                Err(Answer::Ended(why))
            }
            Err(_) => {
                self.link = None;
                Err(Answer::Silent)
            }
        }
    }

    /// The reason that the relay gave in its Close frame, or else the error of the socket.
    async fn ending(&mut self, error: &str) -> String {
        let Some(mut link) = self.link.take() else { return error.to_owned() };
        let deadline = Instant::now() + AFTER_NOTICE;
        while let Ok(Some(message)) = timeout_at(deadline, link.next()).await {
            if let Err(reason) = message {
                return reason.to_string();
            }
        }
        error.to_owned()
    }

    async fn wait_within(
        &mut self,
        Wait { mut deadline, gives_up_after_notice }: Wait,
        mut is: impl FnMut(&RelayMessage<'_>) -> Option<Answer>,
    ) -> Answer {
        let began = Instant::now();
        let mut notice = None;
        loop {
            let Some(link) = self.link.as_mut() else { return Answer::Silent };
            let message = match timeout_at(deadline, link.next()).await {
                Err(_) => return notice.map_or(Answer::Silent, Answer::Refused),
                Ok(None) => {
                    self.link = None;
                    return Answer::Ended(notice.unwrap_or_else(|| "without a reason".to_owned()));
                }
                Ok(Some(Err(error))) => {
                    self.link = None;
                    return Answer::Ended(notice.unwrap_or_else(|| error.to_string()));
                }
                Ok(Some(Ok(message))) => message,
            };
            let message = match self.interpreter.read(&message.payload) {
                Meaning::Message(message) | Meaning::Extended(message) => message,
                Meaning::Foreign | Meaning::Undecodable(_) => {
                    let text = String::from_utf8_lossy(&message.payload);
                    self.foreign.get_or_insert_with(|| quoted(&text));
                    continue;
                }
            };
            match &message {
                RelayMessage::Auth { challenge } => {
                    self.challenged = true;
                    self.challenge = Some(challenge.clone().into_owned());
                }
                RelayMessage::Notice { text } => {
                    notice.get_or_insert(format!("NOTICE {}", quoted(text)));
                    if let Some(slowest) = self.slowest.filter(|_| gives_up_after_notice) {
                        let patience = AFTER_NOTICE.max(SLOWEST_ANSWERS * slowest);
                        deadline = deadline.min(Instant::now() + patience);
                    }
                }
                RelayMessage::Event { subscription, event }
                    if *subscription == LIVE && self.heard.len() < MAX_HEARD =>
                {
                    self.heard.insert(event.id);
                }
                _ => {}
            }
            if let Some(answer) = is(&message) {
                self.slowest = self.slowest.max(Some(began.elapsed()));
                return answer;
            }
            if let RelayMessage::Ok { id, .. } = &message
                && self.unanswered.remove(id)
            {
                self.answered.extend(answer_to(id, &message).map(|answer| (*id, answer)));
            }
        }
    }
}

impl Answer {
    /// The relay's words where it refuses not the message but the rate, as it does also by asking
    /// for proof of work while many events come.
    pub(super) fn about_rate(&self) -> Option<&str> {
        let Answer::Refused(said) = self else { return None };
        let words = said.strip_prefix("NOTICE ").unwrap_or(said);
        ["rate-limited", "pow:"].iter().any(|prefix| words.starts_with(prefix)).then_some(said)
    }
}

/// How to wait for an answer.
struct Wait {
    deadline: Instant,
    /// Whether a NOTICE may stand for it.
    gives_up_after_notice: bool,
}

/// The answer that an OK is to an event.
fn answer_to(id: &[u8; 32], message: &RelayMessage<'_>) -> Option<Answer> {
    match message {
        RelayMessage::Ok { id: of, accepted, text } if of == id => {
            Some(match Verdict::from_ok(*accepted, text) {
                Verdict::Accepted | Verdict::Duplicate | Verdict::Mute => Answer::Taken,
                Verdict::Refused => Answer::Refused(text.clone().into_owned()),
            })
        }
        _ => None,
    }
}

/// Seconds since 1970.
pub(super) fn now_s() -> i64 {
    i64::try_from(driver::unix_s()).unwrap_or(i64::MAX)
}
