//! A NATS server and a relay of a test's own, and the processes of its runs.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use codecs::KindClass;
use corpus::Corpus;
use measure::RunRecord;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use super::nats::Process;
use super::{account::Account, nats::nats_server};
use crate::common::{compare, only_folder};

impl Process {
    pub(crate) fn end(&mut self, within: Duration) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(since.elapsed() < within, "it goes on after {within:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A server and a relay of this test's own, and a folder.
pub(crate) struct Site {
    pub(crate) nats: String,
    pub(crate) relay: String,
    pub(crate) folder: TempDir,
    /// Events that all processes play instead of the bundled ones.
    events: Option<PathBuf>,
    _processes: [Process; 2],
}

/// A site whose processes play a few notes: a player of a debug build is busy with the bundled
/// events for longer than its block lasts.
pub(crate) fn site() -> Site {
    site_of(write_notes)
}

/// The same with other events.
pub(crate) fn site_of(write: fn(&Path)) -> Site {
    site_of_bundled_events().with(write)
}

/// A site whose server has TLS and lets in the users of an account.
pub(crate) fn secure_site(account: &Account) -> Site {
    let mut site = site_over(&account.config()).with(write_notes);
    let (_, port) = site.nats.rsplit_once(':').unwrap();
    site.nats = format!("tls://localhost:{port}");
    site
}

/// Writes 400 of the bundled notes.
pub(crate) fn write_notes(file: &Path) {
    let mut events = Corpus::bundled().events;
    events.retain(|event| event.kind == 1);
    events.truncate(400);
    corpus::write(file, &events).unwrap();
}

/// Writes 25 bundled events of each kind that relays keep.
pub(crate) fn write_mixed(file: &Path) {
    let mut events = Corpus::bundled().events;
    let mut kinds: BTreeMap<u16, u32> = BTreeMap::new();
    events.retain(|event| {
        let count = kinds.entry(event.kind).or_default();
        *count += 1;
        *count <= 25 && event.class() != KindClass::Ephemeral
    });
    corpus::write(file, &events).unwrap();
}

pub(crate) fn site_of_bundled_events() -> Site {
    site_over("jetstream: enabled")
}

/// A site whose server has a configuration.
fn site_over(config: &str) -> Site {
    let (server, nats, folder) = nats_server("-1", config);
    let (relay_process, relay) = relay(&[]);
    Site { nats, relay, folder, events: None, _processes: [server, relay_process] }
}

/// A relay with these flags, and its URL.
pub(crate) fn relay(flags: &[&str]) -> (Process, String) {
    let mut command = compare();
    command.args(["role:relay", "--listen", "127.0.0.1:0", "--announce"]).args(flags);
    let mut relay = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(relay.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let announced: Value = serde_json::from_str(&line).unwrap();
    (relay, announced["listening"].as_str().unwrap().to_owned())
}

/// The same run with another value of a flag.
pub(crate) fn but(run: &Command, flag: &str, value: &OsStr) -> Command {
    let mut words: Vec<&OsStr> = run.get_args().collect();
    let place = words.iter().position(|word| *word == flag).expect("a flag of the run");
    words[place + 1] = value;
    let mut command = compare();
    command.args(words).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Site {
    /// The same with events of its own.
    fn with(mut self, write: fn(&Path)) -> Site {
        let file = self.folder.path().join("few.jsonl.gz");
        write(&file);
        self.events = Some(file);
        self
    }

    pub(crate) fn agent(&self, index: u16, of: u16, flags: &[&str]) -> Process {
        self.player(index, of, &[&["--allow-target", &self.relay], flags].concat())
    }

    pub(crate) fn player(&self, index: u16, of: u16, flags: &[&str]) -> Process {
        self.attend(of, &[&["--index", &index.to_string()], flags].concat())
    }

    pub(crate) fn attend(&self, of: u16, flags: &[&str]) -> Process {
        let mut command = self.compare("agent");
        command.args(["--of", &of.to_string()]).args(flags);
        Process(command.current_dir(self.folder.path()).spawn().unwrap())
    }

    /// A command that meets others at the server, with the site's events.
    pub(crate) fn compare(&self, name: &str) -> Command {
        let mut command = compare();
        command.args([name, "--nats", &self.nats]);
        command.args(self.events.iter().flat_map(|file| ["--corpus".as_ref(), file.as_os_str()]));
        command
    }

    /// A run of JSON alone: its anchor and its control.
    pub(crate) fn run(&self, of: u16, seconds: u32) -> Command {
        self.run_with(of, seconds, &["--url", &self.relay])
    }

    pub(crate) fn run_with(&self, of: u16, seconds: u32, relay: &[&str]) -> Command {
        let mut command = self.compare("run");
        command.args(["--agents", &of.to_string()]).args(relay);
        command.args(["--scenario", "note-stream", "--formats", "json", "--compressions", "none"]);
        command.args(["--rounds", "1", "--seconds", &seconds.to_string(), "--rates", "50", "--quiet"]);
        command.arg("--out").arg(self.folder.path().join("results")).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        command
    }

    /// Waits until the run is in this state, as its coordinator says by NATS's own protocol.
    pub(crate) fn reaches(&self, state: &str) {
        let ask = "CONNECT {}\r\nSUB told 1\r\nPUB nsim.v1.run.look told 0\r\n\r\n";
        let since = Instant::now();
        loop {
            let mut server = TcpStream::connect(self.nats.strip_prefix("nats://").unwrap()).unwrap();
            server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            server.write_all(ask.as_bytes()).unwrap();
            let mut told = Vec::new();
            // Ends with the time, because the server says nothing more.
            let _ = server.read_to_end(&mut told);
            if String::from_utf8_lossy(&told).contains(&format!("\"state\":{state:?}")) {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "the run is never {state}");
        }
    }

    /// Each cell of the result with the record of its first block.
    pub(crate) fn records(&self) -> Vec<(Value, RunRecord)> {
        let text = fs::read_to_string(self.result_folder().join("result.json")).unwrap();
        let result: Value = serde_json::from_str(&text).unwrap();
        let cells = result["cells"].as_array().unwrap().iter();
        let record = |cell: &Value| serde_json::from_value(cell["blocks"][0]["record"].clone());
        cells
            .map(|cell| (cell.clone(), record(cell).unwrap_or_else(|why| panic!("{why}: {cell:#}"))))
            .collect()
    }

    pub(crate) fn result_folder(&self) -> PathBuf {
        only_folder(&self.folder.path().join("results"))
    }
}

/// An address that was free a moment ago.
pub(crate) fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
