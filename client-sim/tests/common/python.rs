//! A relay in Python that lies.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// The relay's process, and its URL.
pub(crate) struct Relay(Child, pub(crate) String);

impl Relay {
    /// Starts the script with these arguments.
    pub(crate) fn start(args: &[&str]) -> Relay {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client-sim/tests/peers/lying_relay.py");
        let mut child = Command::new("python3")
            .arg(script)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Clients that break off are no news.
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 starts");
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("ws://"), "the relay needs python3 with websockets: {url:?}");
        Relay(child, url.trim().to_owned())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
