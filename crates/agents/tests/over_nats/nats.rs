//! A NATS server of a test's own; of the tests of `compare`, too.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server with a configuration, on a free port where it is -1. Returns it, its URL and its
/// folder.
pub(crate) fn nats_server(port: &str, config: &str) -> (Process, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nats.conf");
    fs::write(&file, config).unwrap();
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", port, "--ports_file_dir"]).arg(folder.path());
    command.arg("-c").arg(file).arg("-sd").arg(folder.path().join("store"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("needs nats-server");
    let file = folder.path().join(format!("nats-server_{}.ports", child.id()));
    let process = Process(child);
    let since = Instant::now();
    let url = loop {
        let ports = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        if let Some::<serde_json::Value>(ports) = ports {
            break ports["nats"][0].as_str().unwrap().to_owned();
        }
        assert!(since.elapsed() < Duration::from_secs(10), "nats-server does not start");
        thread::sleep(Duration::from_millis(20));
    };
    (process, url, folder)
}
