//! State of a run while it lasts.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use super::site::{Process, site};

#[test]
#[ignore = "needs nats-server and script of util-linux"]
fn a_terminal_shows_the_sums_of_all_agents_over_nats() {
    let site = site();
    let _agents = [site.agent(0, 2, &[]), site.agent(1, 2, &[])];
    let run = site.run(2, 3);
    let words = [run.get_program()].into_iter().chain(run.get_args()).filter(|word| *word != "--quiet");
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let command = format!("stty rows 50 cols 250; {}", words.join(" "));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut terminal = Process(script.spawn().unwrap());
    let parts = [
        "waits for 2 agents of run run",
        " claimed",
        " armed",
        " running: ",
        " p50 ",
        " sent, ",
        " delivered, ",
        " connections",
    ];
    let mut bytes = [0; 4096];
    let mut shown = String::new();
    while !parts.iter().all(|part| shown.contains(part)) {
        let read = terminal.0.stdout.as_mut().unwrap().read(&mut bytes).unwrap();
        assert!(read > 0, "{parts:?} in {shown:?}");
        shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
}
