//! A client that asks for nothing of ours hears the relay's bytes and is heard with its own, whatever
//! they are.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use codecs::ClientMessage;
use corpus::Corpus;
use futures::{SinkExt, StreamExt, stream};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdout, Command},
    sync::mpsc,
};
use tokio_tungstenite::tungstenite::Message;

use crate::common::{
    Draw, TestGateway, event, field, handshake, head, patiently, relay, sent, switching, text_of, upgraded,
};

/// Frames as sound, careless and hostile peers write them: any type and reserved bit, a length in any
/// of its forms, with a mask or without one, and texts that are no Nostr or no UTF-8.
fn frames(seed: u64, count: usize) -> Vec<u8> {
    let mut draw = Draw(seed);
    let mut bytes = Vec::new();
    for _ in 0..count {
        let most = if draw.below(50) == 0 { 70_000 } else { 200 };
        let len = draw.below(most);
        let payload = match draw.below(8) {
            0 => draw.bytes(len),
            1 => [&4_321_u16.to_be_bytes()[..], "é, enough".as_bytes()].concat(),
            2 => b"[\"WHISPER\" ,\"\xff\"".to_vec(),
            3 => "ü\0\\\"\n".repeat(len / 8).into_bytes(),
            _ => format!(r#"["EVENT", "s",{}]"#, event(1, &len.to_string())).into_bytes(),
        };
        let any = [0x81, 0x81, 0x81, 0x82, 0x88, 0x89, draw.bytes(1)[0]];
        let mask = [0x80, 0][draw.below(2)];
        let short = u16::try_from(payload.len()).ok().filter(|_| draw.below(20) > 0);
        bytes.push(any[draw.below(any.len())]);
        match (payload.len(), short) {
            (len @ ..126, Some(_)) => bytes.push(mask | u8::try_from(len).unwrap()),
            (_, Some(len)) => bytes.extend([&[mask | 126][..], &len.to_be_bytes()].concat()),
            (len, None) => {
                let highest_bit = [0, 1 << 63][draw.below(2)];
                bytes.extend([&[mask | 127][..], &(highest_bit | len as u64).to_be_bytes()].concat());
            }
        }
        bytes.extend(if mask > 0 { draw.bytes(4) } else { vec![] });
        bytes.extend(payload);
    }
    bytes
}

/// Sends bytes in pieces of any size while it reads as many as are expected; whether those are equal.
async fn exchanges(stream: &mut TcpStream, sent: &[u8], expected: &[u8]) -> bool {
    let mut draw = Draw(sent.len() as u64);
    let (mut input, mut output) = stream.split();
    let writing = async {
        let mut rest = sent;
        while !rest.is_empty() {
            let (piece, more) = rest.split_at((1 + draw.below(6_000)).min(rest.len()));
            output.write_all(piece).await.unwrap();
            rest = more;
        }
    };
    let mut received = vec![0; expected.len()];
    let ((), read) = tokio::join!(writing, input.read_exact(&mut received));
    read.is_ok() && received == expected
}

/// Plays connections, each with so many frames each way; every second one is ended by its client.
async fn fuzzes(connections: u64, count: usize) {
    let relay = relay(move |mut stream| async move {
        let request = head(&mut stream).await;
        stream.write_all(switching(&request).as_bytes()).await.unwrap();
        let seed = field(&request, "x-seed").unwrap().parse::<u64>().unwrap();
        let is_equal = exchanges(&mut stream, &frames(2 * seed + 1, count), &frames(2 * seed, count)).await;
        if seed % 2 == 1 {
            assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
        }
        stream.write_all(if is_equal { b"equal" } else { b"other" }).await.unwrap();
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    let address = &gateway.address;
    let play = |seed: u64| async move {
        let request = handshake(&format!("Sec-WebSocket-Extensions: x-unknown\r\nX-Seed: {seed}\r\n"));
        let mut client = sent(address, &request).await;
        assert_eq!(head(&mut client).await, switching(&request), "the relay's answer, too");
        let (sent, expected) = (frames(2 * seed, count), frames(2 * seed + 1, count));
        assert!(patiently(exchanges(&mut client, &sent, &expected)).await, "{seed}");
        if seed % 2 == 1 {
            client.shutdown().await.unwrap();
        }
        let mut end = Vec::new();
        patiently(client.read_to_end(&mut end)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&end), "equal", "{seed}");
    };
    stream::iter(0..connections).map(play).buffer_unordered(8).collect::<()>().await;
    gateway.stop().await;
}

#[tokio::test]
async fn bytes_of_a_client_that_asks_for_nothing_pass_unchanged_whatever_they_are() {
    fuzzes(8, 500).await;
}

/// A line that one of both ends says: an event, an unknown verb or no Nostr.
fn line(seed: u64, n: usize) -> String {
    let mut draw = Draw(seed.wrapping_add(n as u64));
    match draw.below(8) {
        0 => format!(" [\"LIMITS\",{{\"n\":{n}}}]\t"),
        1 => format!("{n} ü✓😀 \\\" \u{7f} no JSON"),
        2 => format!("[\"EVENT\", \"sub\" ,{{\"kind\":{n}}} ]"),
        _ => format!(r#"["EVENT","s",{{"kind":1,"content":"{}"}}]"#, "words ".repeat(draw.below(40))),
    }
}

/// The last message: clients of crates/wire/clients end behind it.
const END: &str = "the end of the campaign";

/// A program of crates/wire/clients: sends each line of a file, and prints each message.
#[derive(Debug)]
struct Foreign {
    program: String,
    args: [&'static str; 2],
    script: PathBuf,
    child: Option<Child>,
}

/// What a foreign client prints.
struct Heard(Lines<BufReader<ChildStdout>>);

impl Heard {
    async fn next(&mut self) -> String {
        patiently(self.0.next_line()).await.unwrap().expect("one more message")
    }
}

impl Foreign {
    /// Starts it anew, to say this.
    fn play(&mut self, address: &str, said: &[String]) -> Heard {
        std::fs::write(&self.script, said.join("\n") + "\n").unwrap();
        let mut command = Command::new(&self.program);
        command.current_dir(clients()).args(self.args.iter().filter(|arg| !arg.is_empty()));
        command.arg(format!("ws://{address}")).arg(&self.script).env("MODULES", "");
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        self.child = Some(child);
        Heard(lines)
    }
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/clients")
}

/// One client each of three languages; files of theirs are in the folder.
async fn foreign_clients(folder: &Path) -> [Foreign; 3] {
    let go = folder.join("go-client").display().to_string();
    let mut build = Command::new("go");
    build.current_dir(clients().join("go")).args(["build", "-mod=readonly", "-o", &go, "."]);
    assert!(build.envs([("GOPROXY", "off"), ("CGO_ENABLED", "0")]).status().await.unwrap().success());
    let client = |program: &str, args| Foreign {
        program: program.to_owned(),
        args,
        script: folder.join("script.txt"),
        child: None,
    };
    [
        client("node", ["node.mjs", "ws"]),
        client("python3", ["python.py", "websockets-plain"]),
        client(&go, ["gorilla", ""]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a campaign; needs node with ws, python3 with websockets, and go with the modules of crates/wire/clients/go"]
async fn campaign_of_foreign_clients_and_a_fuzzer() {
    const EACH: usize = 170_000;
    let (tell, mut told) = mpsc::unbounded_channel();
    let relay = relay(move |stream| {
        let tell = tell.clone();
        async move {
            let (mut output, mut input) = upgraded(stream).await.0.split();
            let saying = async {
                for n in 0..EACH {
                    output.feed(Message::text(line(1, n))).await.unwrap();
                }
                output.flush().await.unwrap();
            };
            let hearing = async {
                let mut equal = 0;
                for n in 0..EACH {
                    let heard = input.next().await.unwrap().unwrap();
                    equal += usize::from(heard == Message::text(line(2, n)));
                }
                equal
            };
            let ((), equal) = tokio::join!(saying, hearing);
            tell.send(equal).unwrap();
            output.send(Message::text(END)).await.unwrap();
            while input.next().await.is_some_and(|rest| rest.is_ok()) {}
        }
    })
    .await;
    let gateway = TestGateway::before(&relay, |config| config.compression.clear()).await;
    let folder = tempfile::tempdir().unwrap();
    let said: Vec<_> = (0..EACH).map(|n| line(2, n)).collect();
    for mut client in foreign_clients(folder.path()).await {
        let mut lines = client.play(&gateway.address, &said);
        for n in 0..EACH {
            assert_eq!(lines.next().await, line(1, n), "{client:?} {n}");
        }
        assert_eq!(lines.next().await, END, "{client:?}");
        assert_eq!(told.recv().await, Some(EACH), "{client:?} is heard");
    }
    fuzzes(1_000, 500).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs khatru, by compare/relays/build, and what the campaign of foreign clients needs"]
async fn foreign_clients_hear_of_khatru_what_they_hear_without_a_gateway() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let start = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compare/relays/start");
    let _khatru = Command::new(start).args(["khatru", &address, "tuned"]).kill_on_drop(true).spawn().unwrap();
    let up = async {
        while TcpStream::connect(&address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    patiently(up).await;
    let gateway = TestGateway::before(&address, |_| {}).await;
    let folder = tempfile::tempdir().unwrap();
    let mut clients = foreign_clients(folder.path()).await;
    let mut events: Vec<_> = Corpus::bundled().events.into_iter().filter(|event| event.kind == 1).collect();
    events.truncate(300);
    let said: Vec<String> =
        events.iter().map(|event| text_of(&ClientMessage::Event(Cow::Borrowed(event)))).collect();
    for (client, said) in clients.iter_mut().zip(said.chunks(100)) {
        let mut heard = client.play(&gateway.address, said);
        let mut taken = 0;
        while taken < said.len() {
            // khatru ends messages with a line feed.
            let answer = heard.next().await;
            assert!(answer.is_empty() || answer.contains(",true,"), "{client:?}: {answer}");
            taken += usize::from(!answer.is_empty());
        }
    }
    // Of an id with other letters it makes empty messages.
    let said = vec![r#"["REQ","all",{"limit":1000}]"#.to_owned()];
    for client in &mut clients {
        let mut lines = [Vec::new(), Vec::new()];
        for (lines, address) in lines.iter_mut().zip([&address, &gateway.address]) {
            let mut heard = client.play(address, &said);
            while !lines.last().is_some_and(|line: &String| line.starts_with("[\"EOSE\"")) {
                lines.push(heard.next().await);
            }
        }
        assert_eq!(lines[0], lines[1], "{client:?}");
        // Of events that come at once it does not always keep each.
        assert!(lines[0].iter().filter(|line| !line.is_empty()).count() > events.len() / 2, "{client:?}");
    }
    gateway.stop().await;
}
