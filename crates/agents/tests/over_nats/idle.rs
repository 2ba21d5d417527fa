//! Agents that load nothing: shows what coordination costs by itself, and stands in for agents in
//! tests.
//!
//! ```text
//! idle agents URL RUN FIRST COUNT OF       COUNT agents in this process, from slot FIRST
//! idle coordinator URL RUN OF BLOCKS SECONDS
//! ```

use std::{
    env, io,
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

use agents::{
    Block, Commanded, Ending, Facts, Identity, Left, Play, Player, Policy, RunId, Spec,
    nats::{Attendance, NatsError, Server, attend, coordinate},
    now_ns,
};
use measure::LiveCounts;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{interval, sleep},
};

const TARGET: &str = "ws://127.0.0.1:1";

/// As long as the record of a usual run.
const RECORD_BYTES: usize = 30_000;

struct Idle;

impl Player for Idle {
    async fn play(
        &self,
        block: Box<Block>,
        index: u16,
        _of: u16,
        mut commands: mpsc::Receiver<Commanded>,
        prepared: oneshot::Sender<Facts>,
        counts: watch::Sender<LiveCounts>,
    ) -> Result<Ending, String> {
        let facts =
            Facts { plan_sha256: "idle".to_owned(), corpus_sha256: identity().corpus_sha256, url: None };
        prepared.send(facts).map_err(|_| "the agent has stopped")?;
        let record = |at_ns: u64, started_ns: u64| {
            let record = format!("{{\"index\":{index},\"at_ns\":{at_ns},\"started_ns\":{started_ns}}}");
            format!("{record:<RECORD_BYTES$}").into_bytes()
        };
        let Some(Commanded::Start { at_ns }) = commands.recv().await else {
            return Ok(Ending { exit_code: Some(5), record: record(0, 0) });
        };
        sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns()))).await;
        let started_ns = now_ns();
        let tell = async {
            let mut seconds = interval(Duration::from_secs(1));
            loop {
                seconds.tick().await;
                counts.send_modify(|counts| counts.sent += 1_000);
            }
        };
        let exit_code = tokio::select! {
            () = sleep(Duration::from_secs(block.play.seconds.into())) => 0,
            _ = commands.recv() => 5,
            () = tell, if block.play.live => 0,
        };
        Ok(Ending { exit_code: Some(exit_code), record: record(at_ns, started_ns) })
    }
}

fn identity() -> Identity {
    let idle = || "idle".to_owned();
    Identity { program_sha256: idle(), corpus_sha256: idle(), dictionary_sha256: idle() }
}

fn block(position: u32, seconds: u32) -> Block {
    let word = |word: &str| word.to_owned();
    let play = Play {
        url: word(TARGET),
        scenario: word("idle"),
        cell: [("format".to_owned(), "json".to_owned())].into(),
        comparable_with: vec![word("json")],
        live: true,
        seed: 1,
        seconds,
        block_id: word("1"),
        ..Play::default()
    };
    Block { round: 0, position, play }
}

fn server(url: &str) -> Server {
    Server { url: url.to_owned(), credentials: None, ca: None }
}

async fn agents(url: &str, run: &RunId, slots: std::ops::Range<u16>, of: u16) -> Result<Left, NatsError> {
    let mut all = JoinSet::new();
    for index in slots {
        let policy = Policy {
            targets: vec![TARGET.parse().expect("an address")],
            max_rate_per_s: None,
            starts_relays: false,
            identity: identity(),
        };
        let attendance = Attendance { server: server(url), run: run.clone(), index, of, policy };
        all.spawn(async move { attend(&attendance, &Idle, std::future::pending()).await });
    }
    let mut worst = Left::Finished;
    while let Some(attended) = all.join_next().await {
        let left = attended.map_err(|error| NatsError::Refused(error.to_string()))??.left;
        if left != Left::Finished {
            worst = left;
        }
    }
    Ok(worst)
}

async fn coordinator(url: &str, run: RunId, of: u16, blocks: u32, seconds: u32) -> Result<Left, NatsError> {
    let stopped = |error: agents::nats::Aborted| Left::Stopped { reason: error.reason, unpublished: None };
    let (has_relay, corpus_file) = (false, None);
    let spec = Spec { run, nonce: now_ns(), of, has_relay, identity: identity(), corpus_file };
    let run = coordinate(server(url), spec, None).await?;
    if let Err(error) = run.ready().await {
        return Ok(stopped(error));
    }
    for position in 0..blocks {
        let began = Instant::now();
        let mut records = 0;
        match run.play(block(position, seconds), |_| records += 1).await {
            Ok(clocks) => {
                let bound_ns = clocks.iter().map(|clock| clock.start_bound_ns).max().unwrap_or(0);
                say(&format!(
                    "{records} records in {} ms of which {} ms are load, start_bound_ns {bound_ns}",
                    began.elapsed().as_millis(),
                    seconds * 1_000
                ));
            }
            Err(error) => return Ok(stopped(error)),
        }
    }
    run.finish();
    Ok(Left::Finished)
}

fn say(line: &str) {
    // A closed stdout says nothing to anybody.
    let _ = writeln!(io::stdout(), "{line}");
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u16>().expect("a number");
    let left = match arguments[..] {
        ["agents", url, run, first, count, of] => {
            let run = run.parse().expect("a name of a run");
            agents(url, &run, number(first)..number(first) + number(count), number(of)).await
        }
        ["coordinator", url, run, of, blocks, seconds] => {
            let run = run.parse().expect("a name of a run");
            coordinator(url, run, number(of), number(blocks).into(), number(seconds).into()).await
        }
        _ => {
            say("idle agents URL RUN FIRST COUNT OF | idle coordinator URL RUN OF BLOCKS SECONDS");
            return ExitCode::from(2);
        }
    };
    match left {
        Ok(Left::Finished) => ExitCode::SUCCESS,
        Ok(Left::Stopped { reason, .. }) => {
            say(&reason);
            ExitCode::from(5)
        }
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(1)
        }
    }
}
