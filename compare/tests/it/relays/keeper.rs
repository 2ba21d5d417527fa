//! The process that keeps a relay.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::COMPARE;

/// A keeper with a command of the shell, which says `ready` when it is.
struct Keeper {
    child: Child,
    stdin: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    mark: String,
}

impl Keeper {
    /// Every process of `script` has `mark` in its command line. The keeper may open few files.
    fn start(mark: &str, script: &str) -> Keeper {
        let mark = format!("{mark}-{}", std::process::id());
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\"", COMPARE])
            .args(["role:relay-keeper", "sh", "-c", script, &mark])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Keeper { stdin: child.stdin.take(), child, output, mark }
    }

    /// Processes of the command that live.
    fn alive(&self) -> usize {
        let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            (pid != self.child.id()).then(|| fs::read(format!("/proc/{pid}/cmdline")).ok())?
        });
        lines.filter(|line| String::from_utf8_lossy(line).contains(&self.mark)).count()
    }

    fn wait_for(&self, processes: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.alive() != processes {
            assert!(Instant::now() < deadline, "{} of {processes} processes live", self.alive());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn last_line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn end(mut self) -> serde_json::Value {
        drop(self.stdin.take());
        let said = self.last_line();
        assert!(self.child.wait().unwrap().success());
        assert_eq!(self.alive(), 0, "nothing is left");
        said
    }
}

/// A process that stays, with the mark in its command line.
const STAYS: &str = "sh -c 'while :; do sleep 0.05; done' \"$0\"";

#[test]
fn a_relay_that_ends_on_sigterm_is_not_killed_and_one_that_ignores_it_is() {
    for (mark, script, processes, was_killed, how) in [
        ("obeys", format!("{STAYS} & {STAYS} & wait"), 3, false, "signal: 15"),
        ("ignores", "trap '' TERM; while :; do sleep 0.05; done".to_owned(), 1, true, "signal: 9"),
    ] {
        let keeper = Keeper::start(mark, &script);
        keeper.wait_for(processes);
        let said = keeper.end();
        assert_eq!((&said["by_itself"], &said["was_killed"]), (&false.into(), &was_killed.into()), "{said}");
        assert!(said["how"].as_str().unwrap().contains(how), "{said}");
    }
}

#[test]
fn a_relay_that_goes_into_the_background_is_kept_and_ended() {
    // It says by its mark that the process that started it has ended.
    let script = "setsid sh -c 'while kill -0 $1; do sleep 0.05; done
        exec sh -c \"while :; do sleep 0.05; done\" \"$0-alone\"' \"$0\" $$ & exit 0";
    let mut keeper = Keeper::start("forks", script);
    keeper.mark.push_str("-alone");
    keeper.wait_for(1);
    let said = keeper.end();
    assert_eq!((&said["by_itself"], &said["how"]), (&false.into(), &"exit status: 0".into()), "{said}");
}

#[test]
fn a_relay_that_ends_by_itself_is_told_of_with_the_last_of_100_megabytes() {
    let mut keeper =
        Keeper::start("writes", "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last; exit 7");
    let said = keeper.last_line();
    assert_eq!((&said["by_itself"], &said["how"]), (&true.into(), &"exit status: 7".into()), "{said}");
    assert_eq!(said["output_bytes"], 100_000_006);
    let output = said["output"].as_str().unwrap();
    assert!(output.len() <= 4_096 && output.ends_with("x\nlast"), "{output}");
}

#[test]
fn what_a_relay_writes_at_its_end_is_told_however_short_it_lives() {
    for _ in 0..100 {
        let said = Keeper::start("brief", "echo first; echo last >&2; exit 3").last_line();
        assert_eq!((&said["output"], &said["output_bytes"]), (&"first\nlast".into(), &11.into()), "{said}");
    }
    // It starts with the highest limit of open files.
    let said = Keeper::start("limits", "ulimit -Sn; ulimit -Hn").last_line();
    let (soft, hard) = said["output"].as_str().unwrap().split_once('\n').unwrap();
    assert!(soft == hard && soft != "64", "{said}");
}

#[test]
fn a_keeper_whose_parent_is_killed_ends_its_relay() {
    let (input, held) = std::io::pipe().unwrap();
    let mut parent = Command::new("sleep").arg("600").stdout(held).spawn().unwrap();
    let keeper = Command::new(COMPARE)
        .args(["role:relay-keeper", "sh", "-c", "while :; do sleep 0.05; done"])
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    let said = keeper.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("\"by_itself\":false"), "{said}");
}
