//! Addresses of relays: how the program reads them, and which parts go where.

use std::{fs, net::TcpListener, path::Path};

use crate::{
    common::{Relay, program},
    events::write_few,
    guard::{Guard, head_bytes},
    ran::{Ran, Runs},
};

/// User and password of these tests, and what RFC 7617 makes of them.
const USER: &str = "me:s3cret";
const BASIC: &str = "Authorization: Basic bWU6czNjcmV0";

/// A scenario whose clients answer the relay's challenge.
const WITH_AUTH: &str = r#"
question = "Does it work?"
learn = "Whether it works."
seconds = 0.2
auth = true

[[publish]]
connections = 1
arrival = { shape = "poisson", rate_per_s = 50 }

[[subscribe]]
connections = 2

[[subscribe.filter]]
kinds = [1]
"#;

/// A header field of these tests, as `--header` takes it and as a request has it.
const FIELD: &str = "X-Api-Key=s3cret/abcdefgh";
const LINE: &str = "x-api-key: s3cret/abcdefgh";

/// All messages of clients, of which none may be compressed.
fn messages(guard: &Guard) -> String {
    let connections = guard.heard.lock().unwrap();
    connections.iter().map(|bytes| unmasked(&bytes[head_bytes(bytes)..])).collect()
}

/// The payloads of a client's frames (RFC 6455 §5.2).
fn unmasked(mut bytes: &[u8]) -> String {
    let mut text = Vec::new();
    while bytes.len() > 6 {
        let (len, begin) = match bytes[1] & 0x7f {
            126 => (usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 4),
            127 => panic!("a client of these tests sends no message so long"),
            len => (usize::from(len), 2),
        };
        let mask = &bytes[begin..begin + 4];
        let end = (begin + 4 + len).min(bytes.len());
        text.extend(bytes[begin + 4..end].iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes = &bytes[end..];
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn client_sim(folder: &Path, args: &[&str]) -> Ran {
    write_few(&folder.join("few.jsonl"));
    program().current_dir(folder).args(args).args(["--corpus", "few.jsonl"]).ran()
}

/// No form of the password is in what a program wrote.
fn silent(output: &Ran, folder: &Path) {
    let mut all = vec![output.out.clone().into(), output.said.clone().into()];
    all.extend(fs::read_dir(folder).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap()));
    for bytes in all {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("s3cret") && !text.contains("bWU6czNjcmV0"), "{text}");
    }
}

#[test]
fn a_password_goes_into_authorization_and_nowhere_else() {
    let relay = Relay::start(&["--auth"]);
    let guard = Guard::before(&relay.url, BASIC);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("auth.toml"), WITH_AUTH).unwrap();
    let url = format!("WS://{USER}@{}/", guard.address);
    let plain = ["--format", "json", "--compression", "none"];
    let args = ["--scenario", "auth.toml", "--url", &url, "--record", "record.json", "--drain-seconds", "2"];
    let run = client_sim(folder.path(), &[&args[..], &plain].concat()).measured();
    silent(&run, folder.path());
    let (heads, messages) = (guard.heads(), messages(&guard));
    assert!(heads.len() > 3, "{heads:?}");
    for head in &heads {
        assert!(head.lines().any(|line| line.eq_ignore_ascii_case(BASIC)), "{head}");
        let host = format!("Host: {}", guard.address);
        assert!(head.lines().any(|line| line.eq_ignore_ascii_case(&host)), "{head}");
        assert!(!head.contains("s3cret"), "{head}");
    }
    assert!(messages.contains("[\"AUTH\",") && !messages.contains("s3cret"), "{messages}");
    let tag = format!("[\"relay\",\"ws://{}\"]", guard.address);
    assert!(messages.contains(&tag), "{messages}");
}

/// Requests for the document among them.
#[test]
fn a_header_field_goes_into_every_request_and_its_value_nowhere_else() {
    let relay = Relay::start(&[]);
    let guard = Guard::before(&relay.url, LINE);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("ws://{}", guard.address);
    let run = ["--scenario", "note-stream", "--seconds", "1", "--rate", "50", "--record", "record.json"];
    let run = [run.as_slice(), &["--ledger", "ledger.jsonl"]].concat();
    for (first, seen) in [(run.as_slice(), "X-Api-Key=***"), (&["doctor", "--json"], "\"tokens\"")] {
        let args = [first, &["--url", &url, "--header", FIELD, "--header=User-Agent=tester/1"]].concat();
        let mut command = program();
        write_few(&folder.path().join("few.jsonl"));
        command
            .args(args)
            .args(["--corpus", "few.jsonl"])
            .current_dir(folder.path())
            // Nothing listens there: no request may go through it.
            .env("ALL_PROXY", "http://127.0.0.1:9")
            .env("RUST_LOG", "trace,ureq=trace,ureq_proto=trace");
        let output = command.ran();
        assert!(matches!(output.code, Some(0 | 1 | 3)), "{output}");
        silent(&output, folder.path());
        let record = fs::read_to_string(folder.path().join("record.json")).unwrap();
        let written = record + &output.out;
        assert!(written.contains(seen), "{written}");
    }
    let (heads, messages) = (guard.heads(), messages(&guard));
    let documents = heads.iter().filter(|head| head.contains("application/nostr+json")).count();
    assert!(documents == 2 && heads.len() > 10, "{heads:?}");
    for head in &heads {
        let count = |line: &str| head.lines().filter(|one| one.eq_ignore_ascii_case(line)).count();
        assert_eq!((count(LINE), count("User-Agent: tester/1")), (1, 1), "{head}");
        assert_eq!(head.to_ascii_lowercase().matches("user-agent").count(), 1, "{head}");
    }
    assert!(!messages.contains("s3cret"), "{messages}");
}

#[test]
fn a_relay_that_is_not_reached_names_the_proxy_that_was_not_asked() {
    for args in [&["--scenario", "note-stream"][..], &["doctor", "--scenario", "note-stream"]] {
        let mut command = program();
        command.args(args).args(["--url", "ws://relay.invalid"]).env("HTTP_PROXY", "http://127.0.0.1:9");
        command.ran().ended(1).saying(&["HTTP_PROXY is set, but connections to relays use no proxy"]);
    }
}

#[test]
fn a_secret_that_is_wrong_or_refused_is_not_repeated() {
    let relay = Relay::start(&[]);
    let [by_password, by_line] = [BASIC, LINE].map(|line| Guard::before(&relay.url, line).address);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("doctor.json"), "{}").unwrap();
    let open = format!("ws://{by_line}");
    let not_parsed = "--header <NAME=VALUE>: expected NAME=VALUE";
    for (url, header, code, why) in [
        (format!("ws://you:s3cret@{by_password}"), None, 1, "401"),
        (format!("ws://{USER}@{closed}"), None, 1, "onnection refused"),
        (format!("ws://{USER}@127.0.0.1:port"), None, 2, "port"),
        (format!("http://{USER}@{closed}"), None, 2, "ws://"),
        (format!("ws://{USER}@{closed}/#x"), None, 2, "fragment"),
        (format!("wss://{USER}@{closed}"), None, 1, "refused"),
        (open.clone(), Some("X-Api-Key=an0ther-s3cret"), 1, "403"),
        (open.clone(), Some("X-Api-Key: s3cret"), 2, not_parsed),
        (open.clone(), Some("Authorization: Basic s3cret="), 2, "no field name"),
        (open.clone(), Some("X-Api-Key=s3cret\r\nHost: b"), 2, "control character"),
        (open, Some("Host=s3cret"), 2, "Host is not for users to set"),
        (
            format!("ws://{USER}@{by_line}"),
            Some("Authorization=Bearer s3cret"),
            2,
            "user and password of the URL",
        ),
    ] {
        let header: Vec<&str> = header.iter().flat_map(|header| ["--header", header]).collect();
        let run = ["--scenario", "note-stream", "--seconds", "1", "--doctor", "doctor.json", "--url", &url];
        for args in [run.as_slice(), &["doctor", "--scenario", "note-stream", "--url", &url]] {
            let output = client_sim(folder.path(), &[args, &header].concat()).ended(code).saying(&[why]);
            silent(&output, folder.path());
        }
    }
    // A relay of our own has no proxy.
    let own = client_sim(folder.path(), &["--scenario", "note-stream", "--header", FIELD]);
    silent(&own.ended(2).saying(&["--url"]), folder.path());
}

#[test]
fn an_address_that_stands_where_none_belongs_is_shown_without_its_password() {
    let lines: [&[&str]; 4] = [
        &["ws://me:s3cret@relay"],
        &["--seconds=ws://me:s3cret@relay"],
        &["role:relay", "ws://me:s3cret@relay"],
        &["role:relay", "--announce", "--threads=ws://me:s3cret@relay"],
    ];
    for line in lines {
        let run = program().args(line).ran().ended(2).saying(&["ws://***@relay"]);
        assert!(!run.out.contains("s3cret") && !run.said.contains("s3cret"), "{run}");
    }
}
