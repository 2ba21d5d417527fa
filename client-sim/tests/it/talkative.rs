//! A relay that says more than it is asked: every verb, length and type that live relays send
//! stands between right answers, and neither `client-sim` nor its doctor takes it for one.

use codecs::Opcode;
use corpus::Random;
use measure::Status;
use serde_json::{Value, json};
use wire::{Connection, Message};

use crate::{between::Between, common::program, events::write_few, ran::Runs, setup::Setup};

/// What a relay says that is no answer, from a seed.
#[derive(Debug, Clone)]
struct Numbers(Random);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Text as relays write it, and as nobody should.
    fn text(&mut self) -> String {
        let words = [
            "",
            "welcome",
            "restart at 04:00",
            "rate-limited: slow down",
            "error: could not connect to the database",
            "blocked: event kind is blocked by relay",
            "auth-required: we only serve members",
            "invalid: bad req: unknown filter",
            "🤙 ⚡ こんにちは",
            "\u{1b}[2J\u{7}\r\n\t\u{202e}",
            "\"quoted\" \\ and </script>",
        ];
        let long = self.one_of(&[1, 1, 1, 40, 2_000]);
        self.one_of(&words).repeat(long)
    }

    /// A value of any type, nested a few times.
    fn value(&mut self, depth: u32) -> Value {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(1 << 53)),
            3 => json!(-0.5),
            4 | 5 => json!(self.text()),
            6 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let pairs = (0..self.below(4)).map(|n| (format!("max_{n}"), self.value(depth - 1)));
                Value::Object(pairs.collect())
            }
        }
    }

    /// A message that answers nothing.
    fn aside(&mut self) -> String {
        let (id, text) = (format!("{:064x}", self.below(usize::MAX)), self.text());
        let name =
            self.one_of(&["other", "", "live-999", "s999999-0-0", "v999999-0", "n999999", "sub:1", "feed"]);
        let mut message = match self.below(15) {
            0 | 1 => json!(["NOTICE", text]),
            2 => json!(["LIMITS", { "can_write": true, "max_limit": 500, "extra": self.value(3) }]),
            3 => json!(["CLOSED", name, text]),
            4 => json!(["EOSE", name]),
            5 => json!(["OK", id, self.below(2) == 0, text]),
            6 => json!(["OK", self.one_of(&["", "?", "undefined", "null"]), false, text]),
            7 => json!(["AUTH", text]),
            8 => json!(["COUNT", name, { "count": self.below(9) }]),
            9 => json!(["NEG-ERR", name, text]),
            10 => json!(["NEG-MSG", name, "61"]),
            11 => {
                let verb =
                    self.one_of(&["PING", "INFO", "HELLO", "CHANGES", "STATUS", "notice", "Eose", "", "REQ"]);
                json!([verb, self.value(3)])
            }
            12 => json!(["NOTICE", self.value(2)]),
            // A keep-alive, also without anything in it.
            13 => return self.one_of(&["PING", ""]).to_owned(),
            _ => return self.value(3).to_string(),
        };
        if let Value::Array(elements) = &mut message
            && !matches!(elements[0].as_str(), Some("NEG-MSG"))
        {
            // Shorter or longer than its NIP has it, now and then.
            match self.below(6) {
                0 => elements.extend((0..=self.below(3)).map(|_| self.value(2)).collect::<Vec<_>>()),
                1 => elements.truncate(1 + self.below(3)),
                _ => {}
            }
        }
        message.to_string()
    }

    /// The same answer in a form that live relays give it.
    fn extended(&mut self, answer: &str) -> String {
        let Ok(Value::Array(mut elements)) = serde_json::from_str(answer) else { return answer.to_owned() };
        match elements[0].as_str() {
            Some("EVENT") if self.below(4) > 0 => return answer.to_owned(),
            Some("OK") if elements[3] == "" && self.below(2) == 0 => _ = elements.pop(),
            Some("EVENT" | "EOSE" | "OK" | "CLOSED" | "AUTH" | "NEG-MSG" | "NEG-ERR") => {
                elements.push(self.value(2));
            }
            _ => {}
        }
        Value::Array(elements).to_string()
    }

    /// Words that follow an answer now and then and say nothing more: the same again, OK with
    /// another verdict, CLOSED of a request that is over.
    fn again(&mut self, answer: &str) -> Option<String> {
        let Ok(Value::Array(mut elements)) = serde_json::from_str(answer) else { return None };
        match (elements[0].as_str()?, elements.get(1)?.as_str()?) {
            ("OK", _) if self.below(2) == 0 => elements[2] = (elements[2] == false).into(),
            ("OK", _) => {}
            // Requests of a run begin with s, and not its live subscriptions.
            ("EOSE", name) if name.starts_with('s') && self.below(2) == 0 => {
                elements[0] = "CLOSED".into();
                elements.push(self.text().into());
            }
            ("EOSE", _) => {}
            _ => return None,
        }
        Some(Value::Array(elements).to_string())
    }

    /// The same message as encoders of other languages write it.
    fn written(&mut self, message: String) -> String {
        let spaced = |message: &str| {
            let value: Result<Value, _> = serde_json::from_str(message);
            value.and_then(|value| serde_json::to_string_pretty(&value))
        };
        match self.below(12) {
            // Go ends a message with its line.
            0 => message + "\n",
            1 => spaced(&message).unwrap_or(message),
            // PHP escapes slashes, Python what is not ASCII.
            2 => message.replace('/', "\\/"),
            3 => message.chars().fold(String::new(), |mut ascii, char| {
                if char.is_ascii() {
                    ascii.push(char);
                } else {
                    char.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                        ascii.push_str(&format!("\\u{unit:04x}"));
                    });
                }
                ascii
            }),
            _ => message,
        }
    }
}

/// A relay that says what follows from the seed beside its answers.
fn talkative(seed: u64) -> Between {
    Between::start(move |client, relay, connection| {
        carry(client, relay, Numbers(Random::new("talkative", seed << 32 | connection)))
    })
}

/// Carries messages both ways until one end closes.
async fn carry(mut client: Connection, mut relay: Connection, mut numbers: Numbers) {
    let greeting = numbers.aside();
    let mut said = vec![greeting];
    let binary = Message { opcode: Opcode::Binary, payload: "\u{2}\u{1}".into() };
    client.feed_message(binary).await.unwrap();
    loop {
        for text in said.drain(..) {
            if client.feed(numbers.written(text).into()).await.is_err() {
                return;
            }
        }
        if client.flush().await.is_err() {
            return;
        }
        tokio::select! {
            asked = client.next() => {
                let Some(Ok(asked)) = asked else { return };
                // In front of the answer, and also where none is due.
                if numbers.below(3) == 0 {
                    said.push(numbers.aside());
                }
                relay.feed(asked.payload).await.unwrap();
                relay.flush().await.unwrap();
            }
            answer = relay.next() => {
                let Some(Ok(answer)) = answer else { return };
                let answer = String::from_utf8(answer.payload.to_vec()).unwrap();
                for _ in 0..numbers.one_of(&[0, 0, 0, 1, 2]) {
                    said.push(numbers.aside());
                }
                let again = if numbers.below(5) == 0 { numbers.again(&answer) } else { None };
                let extends = numbers.below(3) == 0;
                said.push(if extends { numbers.extended(&answer) } else { answer });
                said.extend(again);
            }
        }
    }
}

const SCENARIO: &str = r#"
question = "Is anything but an answer taken for one?"
learn = "Whether it is."
seconds = 0.5

[[publish]]
connections = 2
arrival = { shape = "poisson", rate_per_s = 60 }

[[subscribe]]
connections = 3

[[subscribe.filter]]
kinds = [1, 7, 3]

[[request]]
connections = 3
arrival = { shape = "burst", period_ms = 100 }

[[request.step]]
kinds = [1, 3]
authors = 5

[[reconcile]]
connections = 2
arrival = { shape = "burst", period_ms = 500 }
have = 0.9
extra = 0
frame_bytes = 64000
"#;

/// Asks the doctor and plays the scenario, over a relay that says what follows from the seed.
fn play(seed: u64) {
    let relay = talkative(seed);
    let setup = Setup::new(SCENARIO, write_few);
    let mut doctor = program();
    doctor.args(["doctor", "--json", "--url", &relay.url, "--corpus"]).arg(setup.path("events.jsonl"));
    let doctor = doctor.arg("--scenario").arg(setup.path("plan.toml")).ran().ended(0).out;
    let found: Value = serde_json::from_str(&doctor).unwrap();
    assert_eq!(
        found["rules"],
        json!({ "bounds": {}, "kinds": {}, "kinds_after_auth": {} }),
        "seed {seed}: {found}"
    );
    assert_eq!(found["bounds"], json!({}), "seed {seed}: {found}");
    assert_eq!(found["handshakes"][0]["granted"]["Ok"], "none", "seed {seed}: {found}");
    setup.write("doctor.json", &doctor);
    let mut run = setup.command(&["--url", &relay.url, "--seed", "1", "--drain-seconds", "20"]);
    let said = run.arg("--doctor").arg(setup.path("doctor.json")).ran().measured().said;
    let record = setup.record();
    let counts = &record.counts;
    assert_eq!((counts.balanced(), &record.status), (Ok(()), &Status::Complete), "seed {seed}: {said}");
    assert_eq!((counts.acked, counts.requests_failed), (counts.planned, 0), "seed {seed}: {said}");
    assert!(counts.reconciliations == 2 && counts.deliveries > 50, "seed {seed}: {counts:?}");
    assert!(counts.answers_unexpected > 20, "seed {seed}: {counts:?}");
    let quotes = said.lines().filter(|line| line.starts_with("passed over ")).collect::<Vec<_>>();
    assert!(quotes.len() == 1 && quotes[0].len() < 1_500, "seed {seed}: {said}");
    assert!(!said.contains(|char: char| char.is_control() && char != '\n'), "seed {seed}: {said:?}");
}

#[test]
fn what_answers_nothing_is_passed_over_by_runs_and_by_the_doctor() {
    for seed in 1..=2 {
        play(seed);
    }
}

/// Run with `cargo test -p client-sim --test it talkative::campaign -- --ignored`. `TALKATIVE_SEED` is
/// the first seed.
#[test]
#[ignore = "a campaign of minutes: CONTRIBUTING.md has the command"]
fn campaign_of_talkative_relays() {
    let first = std::env::var("TALKATIVE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(100);
    (first..first + 40).for_each(play);
}
