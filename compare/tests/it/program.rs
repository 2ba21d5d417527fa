//! The real program: it starts clients, which start relays.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use report::ResultFile;
use tempfile::TempDir;

use crate::{
    certificate::certificate,
    common::{compare, only_folder},
    few::few_events,
    guard::Guard,
    help::words,
    over_nats::site::relay,
    ran::{Ran, Runs, send},
    scrape::{address, scrapes, value},
};

/// What a run of one cell needs beside its anchor: few notes a second, which a debug build keeps.
const ONE_CELL: [&str; 6] = ["--formats", "json", "--compressions", "none", "--", "--rate=50"];

/// A run of few events and a second, or of what the arguments name.
fn command(out: &Path, args: &[&str]) -> Command {
    let mut command = compare();
    command.args(["run", "--scenario", "note-stream", "--rounds", "1", "--out"]).arg(out);
    for (flag, value) in [("--seconds", Path::new("1")), ("--corpus", few_events())] {
        if !args.contains(&flag) {
            command.arg(flag).arg(value);
        }
    }
    command.args(args);
    command
}

fn run(out: &Path, args: &[&str]) -> Ran {
    command(out, args).ran()
}

#[test]
fn a_dry_run_names_the_families_and_measures_nothing() {
    let out = TempDir::new().unwrap();
    let dry = |more: &[&str]| {
        let mut run = compare();
        run.args(["run", "--dry-run", "--formats", "json,capnp", "--compressions", "none,deflate"]);
        run.args(["--rounds", "16", "--out"]).arg(out.path()).args(more).ran()
    };
    let text = dry(&[]).ended(0).out;
    assert!(text.contains("\nPrimary: json+deflate capnp+none\n"), "{text}");
    assert!(text.contains(" in relay CPU") && text.ends_with("(2 primary cells)\n"), "{text}");
    let text = dry(&["--primary", "capnp+deflate"]).out;
    assert!(text.contains("Primary: capnp+deflate\nSecondary: json+deflate capnp+none\n"), "{text}");
    dry(&["--primary", "json+none"]).ended(2).saying(&["known: json+deflate capnp+none"]);
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn a_small_matrix_runs_from_start_to_table() {
    let out = TempDir::new().unwrap();
    let call =
        "--formats dannypack --compressions zstd --batching off,on:n=16 --slo 'p50<1ns, lost=0' -- --rate 50";
    let Ran { code, out: table, said: progress, .. } = run(out.path(), &words(call));
    // No median is below a nanosecond (99). A busy machine may make a block invalid (3); nothing
    // else may go wrong.
    assert!(matches!(code, Some(99 | 3)), "{code:?}\n{progress}");
    assert!(table.contains("p50<1ns") && table.contains("**missed**"), "{table}");
    // No terminal: a line for each block, without control characters.
    assert!(
        progress.starts_with("Fewer than six rounds find no difference\n7 blocks, about "),
        "{progress:?}"
    );
    assert!(!progress.contains('\u{1b}'), "{progress:?}");
    let blocks: Vec<&str> = progress.lines().filter(|line| line.starts_with("block ")).collect();
    assert_eq!(blocks.len(), 7, "{progress}");
    for line in blocks {
        assert!(line.contains("round 1/1 ") && line.contains("/s, p99 ") && line.contains(" left"), "{line}");
    }
    for cell in ["json", "dannypack"] {
        assert!(table.contains(cell), "{table}");
    }
    let folder = only_folder(out.path());
    let result = ResultFile::read(&folder).unwrap();
    let ids: Vec<&str> = result.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["json+none", "json-control", "floor", "dannypack+zstd", "dannypack.batched:n=16+zstd"]);
    assert_eq!(result.cells[3].cell.batching, "none");
    assert_eq!(result.cells[4].cell.batching, "ms=5 n=16 bytes=65536");
    for record in result.cells.iter().map(|cell| cell.blocks[0].record.as_ref().unwrap()) {
        record.counts.balanced().unwrap();
        assert_eq!(record.counts.deliveries, 400, "50 notes a second to 8 subscribers");
        assert!(record.relay_cpu.as_ref().unwrap().total_ns > 0);
    }
    assert!(fs::read_to_string(folder.join("summary.md")).unwrap().contains("| dannypack | zstd | none |"));
}

#[test]
fn a_program_that_is_replaced_plays_a_run_to_its_end_and_the_next_run_is_compared_with_it() {
    let (out, folder) = (TempDir::new().unwrap(), TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let [program, other] = ["compare", "other"].map(|name| folder.path().join(name));
    fs::hard_link(env!("CARGO_BIN_EXE_compare"), &program).unwrap();
    fs::write(&other, "#!/bin/sh\ntouch \"$0.ran\"; exit 1\n").unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
    let mut first = Command::new(&program);
    first.args(command(out.path(), &ONE_CELL).get_args()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut first = first.spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(first.stderr.take().unwrap()).lines() {
        said = said + &line.unwrap() + "\n";
        if said.lines().last().is_some_and(|line| line.starts_with("block ")) && other.exists() {
            fs::rename(&other, &program).unwrap();
        }
    }
    // A busy machine may make a block invalid (3).
    assert!(matches!(first.wait().unwrap().code(), Some(0 | 3)) && !other.exists(), "{said}");
    assert!(!folder.path().join("compare.ran").exists(), "another build played: {said}");
    assert!(said.contains("every block ran the build that was started"), "{said}");
    assert!(!said.contains("since "), "{said}");
    let result = ResultFile::read(&only_folder(out.path())).unwrap();
    let records = result.cells.iter().flat_map(|cell| &cell.blocks).map(|block| block.record.as_ref());
    let played: Vec<_> = records.map(|record| record.unwrap().counts.balanced()).collect();
    assert!(played.len() > 1 && played.iter().all(Result::is_ok), "{played:?} {said}");

    fs::create_dir(out.path().join("29990101T000000Z")).unwrap();
    let last = run(out.path(), &ONE_CELL).measured().said;
    let mut folders: Vec<_> = fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(last.contains(&format!("since {}: 0 worse, 0 better, ", folders[0].display())), "{last}");
    assert!(last.ends_with("shows each\n") && last.contains("compare diff "), "{last}");
}

#[test]
fn all_blocks_of_a_run_are_scraped_at_one_address() {
    let out = TempDir::new().unwrap();
    let mut run =
        command(out.path(), &[&["--metrics-listen", "0", "--seconds", "2"][..], &ONE_CELL].concat());
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (address, said) = address(run.stderr.take().unwrap());
    let others = thread::spawn(move || said.count());
    let scrapes = scrapes(&address);
    assert!(matches!(run.wait().unwrap().code(), Some(0 | 3)));
    assert!(others.join().unwrap() > 0);
    let result = ResultFile::read(&only_folder(out.path())).unwrap();
    assert_metrics_add_up(&scrapes, &result);
    let records = result.cells.iter().flat_map(|cell| &cell.blocks).filter_map(|block| block.record.as_ref());
    let relay_s = value(scrapes.last().unwrap(), "nsim_cpu_seconds_total{process=\"relay\"}");
    let relay_ns: u64 = records.map(|record| record.relay_cpu.unwrap().total_ns).sum();
    assert!((relay_s - relay_ns as f64 / 1e9).abs() < 1e-6);
}

/// The last metrics of a run are the sums of its blocks, and all grew while these were played.
pub(crate) fn assert_metrics_add_up(scrapes: &[String], result: &ResultFile) {
    let blocks: Vec<_> = result.cells.iter().flat_map(|cell| &cell.blocks).collect();
    let last = scrapes.last().unwrap();
    let sum = |of: fn(&measure::Counts) -> u64| {
        blocks.iter().map(|block| of(&block.record.as_ref().unwrap().counts)).sum::<u64>() as f64
    };
    assert!(blocks.len() > 1);
    for (sample, sum) in [
        ("nsim_deliveries_total", sum(|counts| counts.deliveries)),
        ("nsim_events_sent_total", sum(|counts| counts.planned)),
    ] {
        let values: Vec<f64> = scrapes.iter().map(|text| value(text, sample)).collect();
        assert_eq!(values.last(), Some(&sum), "{sample}");
        let grew = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(values.is_sorted() && grew > blocks.len(), "{sample} grows within blocks: {values:?}");
    }
    let ends = ["valid", "suspect", "invalid", "failed"];
    let ends = ends.map(|end| value(last, &format!("nsim_blocks_total{{validity=\"{end}\"}}")));
    assert_eq!((ends.iter().sum::<f64>(), ends[3]), (blocks.len() as f64, 0.0));
}

#[test]
fn when_nothing_was_measured_no_result_is_left_behind() {
    let out = TempDir::new().unwrap();
    let run = run(out.path(), &["--", "--no-such-flag"]).ended(2);
    assert_eq!(run.saying(&["--no-such-flag", "nothing was measured"]).out, "");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn a_line_that_is_no_event_is_found_before_a_block_is_played_or_left_out_and_counted() {
    let (out, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bad = folder.path().join("bad.jsonl");
    fs::copy(few_events(), &bad).unwrap();
    let file = fs::OpenOptions::new().append(true).open(&bad).unwrap();
    (&file).write_all(b"{\"id\":5}\n").unwrap();
    let corpus = bad.display().to_string();
    for command in [["run", "--rounds=1"], ["search", "--probe-seconds=1"]] {
        let run = compare().args(command).args(["--corpus", &corpus, "--out"]).arg(out.path()).ran().ended(2);
        let names = ["bad.jsonl", "line 501", "id: 5, expected", "corpus verify", "--skip-invalid"];
        let run = run.saying(&names);
        assert!(run.out.is_empty() && !run.said.contains("block "), "{run}");
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
    }
    let left_out = [&["--corpus", &corpus, "--skip-invalid"][..], &ONE_CELL].concat();
    run(out.path(), &left_out).saying(&["1 skipped that are not valid events (line 501:"]);
    let folder = only_folder(out.path());
    let corpus = ResultFile::read(&folder).unwrap().corpus.unwrap();
    assert_eq!((corpus.events, corpus.invalid_skipped), (500, 1));
    let summary = fs::read_to_string(folder.join("summary.md")).unwrap();
    assert!(summary.contains("500 events, 1 invalid skipped"), "{summary}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_runs_with_exit_code_2() {
    let folder = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("run --metrics-listen {}", taken.local_addr().unwrap());
    for (call, says) in [
        ("run --scenario nope", "unknown scenario \"nope\"|follow-list-burst"),
        ("run --scenario note-stream,nope --rates auto", "unknown scenario \"nope\""),
        ("search --scenario nope", "unknown scenario \"nope\""),
        ("search --by bandwidth --formats json,dannypack --scenario nope", "unknown scenario \"nope\""),
        ("role:client --scenario nope", "unknown scenario \"nope\""),
        ("run --scenario missing.toml", "cannot read scenario missing.toml"),
        ("run --formats xml", "unknown format \"xml\"|dannypack"),
        ("run --compressions lz4", "unknown compression \"lz4\"|deflate"),
        ("run --selftest missing.json", "there is no missing.json"),
        ("selftest --only stal", "stall|plus-10"),
        ("report missing", "there is no missing"),
        ("diff missing missing", "there is no missing"),
        ("run --metrics-listen 0 --profile publish", "--metrics-listen has clients count"),
        (taken.as_str(), "cannot listen on --metrics-listen 127.0.0.1"),
        ("run --scenario follow-list-burst --seconds 1 --profile quick", "--seconds 5 would do"),
        // A secret or a factor behind the matrix.
        ("run --formats json -- --header a=s3cret", " before the --"),
        ("run --formats json -- --url ws://me:s3cret@127.0.0.1", " before the --"),
        ("run --formats json -- --relay-at ws://me:s3cret@127.0.0.1", " before the --"),
        ("run --formats json -- --batching=on", "give --batching before the --"),
        ("run --url ws://127.0.0.1:9 -- --compressions none", "give --compressions before the --"),
        ("run --url wss://127.0.0.1:9 -- --ca cert.pem", "give --ca before the --: compare run has it"),
        // A rate, a bound or a share that nothing can reach.
        ("run --rates 0", "above 0"),
        ("run --utilisation 95%", "--utilisation"),
        ("run --utilisation 10% --load 4", "--utilisation"),
        ("search --start 1000 --limit 10", "beyond --limit 10"),
        ("search --slo 'p99<100ms, achieved>=0.99' --probe-seconds 3", "take --probe-seconds 10"),
        // Flags of another search, and of our own relay.
        ("search --rtts 30ms", "--rtts is only for --by bandwidth"),
        ("search --by bandwidth --slo lost=0", "--slo is only for --by load or rate"),
        ("search --by bandwidth --formats json", "a break-even is of two cells"),
        ("search --by bandwidth --rtts 30ms:loss=1%", "expected a single value"),
        ("search --url ws://127.0.0.1:9 --verify none", "--verify is for relays of our own"),
        ("run --url ws://127.0.0.1:9 --link wifi", "--link is for relays of our own"),
        // What a pilot decides.
        ("run --max-time 5m", "--precision"),
        ("run --precision 3", "a share from 0.1% to 50%"),
        ("run --precision 3% --max-time '5 min'", "as in 30m"),
        ("run --rates auto,100", "--rates auto chooses one rate"),
        ("run --rates fast", "a whole number above 0, or auto"),
        ("run --rates auto --url ws://127.0.0.1:9", "give --rates a number"),
        // Relays by name.
        ("run --relay 'a=x {port}' --relay 'a=y {port}'", "two relays are named a"),
        ("run --relay floor --relay 'a=x {port}'", "name a relay before it"),
        ("run --relay 'a=x {port}' --verify none", "--verify is for relays of our own"),
        ("run --relay 'a=x {port}' -- --set subscribe.link=slow-4g", "leave out --relay"),
        ("run --relay 'a=x {port}' -- --set subscribe.lnk=slow-4g", "unknown field `lnk`"),
        ("run --fail-on p99>3%", "--relay"),
        ("run --relay 'a=x {port}' --fail-on memory>3%", "known: relay CPU"),
    ] {
        let run = compare().current_dir(&folder).args(words(call)).ran().ended(2);
        let run = run.saying(&says.split('|').collect::<Vec<_>>());
        assert!(!run.said.contains("s3cret"), "{run}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{call}");
    }
}

#[test]
fn nothing_is_published_from_local_changes_or_the_checkout_of_another_project() {
    for (file, says) in [
        ("compare/src/git.rs", ["needs a clean tree", "commit or stash"]),
        ("src/relay.rs", ["in no checkout of this program", "--profile standard"]),
    ] {
        let tree = TempDir::new().unwrap();
        let git = |args: &[&str]| {
            let name = ["-c", "user.name=Test", "-c", "user.email=test@example.org"];
            assert!(Command::new("git").current_dir(&tree).args(name).args(args).status().unwrap().success());
        };
        let path = tree.path().join(file);
        let folder = path.parent().unwrap();
        fs::create_dir_all(folder).unwrap();
        git(&["init", "--quiet"]);
        fs::write(&path, "committed").unwrap();
        git(&["add", file]);
        git(&["commit", "--quiet", "--message", "A file"]);
        fs::write(&path, "changed").unwrap();
        let publish = ["run", "--profile", "publish", "--rounds", "1", "--seconds", "1"];
        compare().current_dir(folder).args(publish).ran().ended(2).saying(&says);
        assert!(!folder.join("results").exists());
    }
}

/// Neither what a program wrote into a folder nor what it said has the password.
fn no_password_in(folder: &Path, output: &Ran) {
    let mut folders = vec![folder.to_owned()];
    let mut texts = vec![output.out.clone().into(), output.said.clone().into()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                texts.push(fs::read(entry.path()).unwrap());
            }
        }
    }
    assert!(texts.len() > 4);
    for text in texts {
        assert!(!text.windows(6).any(|six| six == b"s3cret"), "{}", String::from_utf8_lossy(&text));
    }
}

/// Each flag that takes an address, of all programs but `corpus`.
#[test]
fn no_flag_repeats_a_password() {
    let out = TempDir::new().unwrap();
    let program = |call: &str| {
        let mut command = compare();
        command.args(call.split(' ')).current_dir(out.path());
        command
    };
    for (call, flag) in [
        ("run", "--url"),
        ("search", "--url"),
        ("run --nats nats://127.0.0.1:1 --agents 1 --relay-listen 127.0.0.1:1", "--relay-url"),
        ("agent --nats nats://127.0.0.1:1 --of 1 --index 0", "--allow-target"),
        ("agent --nats nats://127.0.0.1:1 --of 1 --relay-listen 127.0.0.1:1", "--relay-url"),
        ("role:client --scenario note-stream", "--url"),
        ("role:client --scenario note-stream", "--relay-at"),
        ("role:client --scenario note-stream --seed 1 --record x --serve 127.0.0.1:0", "--relay-at"),
        ("role:client doctor", "--url"),
    ] {
        let run = program(call).args([flag, "ws://me:s3cret@127.0.0.1:port"]).ran().ended(2);
        assert!(!run.saying(&["ws://HOST:PORT"]).said.contains("s3cret"), "{call} {flag}");
    }
    for url in ["http://me:s3cret@relay", "ws://me:s3cret#@relay", "me:s3cret@relay"] {
        let run = program("role:client doctor --url").arg(url).ran().ended(2).saying(&["ws://HOST:PORT"]);
        assert!(!run.said.contains("s3cret"), "{run}");
    }
    let mut asked = Vec::new();
    for nats in [
        "nats://me:s3cret@127.0.0.1:port",
        "http://me:s3cret@127.0.0.1",
        "me:s3cret@[127",
        "nats://me:s3cret@127.0.0.1:1",
    ] {
        for call in [
            "run --agents 1 --relay-listen 127.0.0.1:1",
            "agent --of 1 --index 0 --allow-target ws://127.0.0.1:1",
        ] {
            let mut command = program(call);
            command.args(["--nats", nats, "--corpus"]).arg(few_events());
            let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            asked.push((format!("{call} {nats}"), child));
        }
    }
    // An agent waits for a server that is not there yet.
    let since = Instant::now();
    while asked.iter_mut().any(|(_, child)| child.try_wait().unwrap().is_none())
        && since.elapsed() < Duration::from_secs(2)
    {
        thread::sleep(Duration::from_millis(20));
    }
    for (what, mut child) in asked {
        child.kill().ok();
        let said = child.ran().said;
        assert!(!said.contains("s3cret"), "{what}: {said}");
    }
}

#[test]
fn a_relay_behind_tls_can_be_compared_with_itself_compressed() {
    let out = TempDir::new().unwrap();
    let [cert, key] = certificate(out.path(), "relay");
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let (_relay, behind) = relay(&["--tls-cert", cert, "--tls-key", key]);
    let port = behind.trim_end_matches('/').rsplit(':').next().unwrap();
    let url = format!("wss://me:s3cret@localhost:{port}");

    let results = out.path().join("results");
    let run = run(&results, &["--url", &url, "--ca", cert, "--", "--rate", "50"]).measured();
    let folder = only_folder(&results);
    no_password_in(&folder, &run);
    let result = ResultFile::read(&folder).unwrap();
    let ids: Vec<&str> = result.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["json+none", "json-control", "json+deflate"]);
    for record in result.cells.iter().flat_map(|cell| &cell.blocks).map(|b| b.record.as_ref().unwrap()) {
        // Had a block sent what another had, the relay would not have passed it on.
        record.counts.balanced().unwrap();
        assert_eq!((record.counts.deliveries, record.cell.verify.as_str()), (400, "unknown"));
    }
}

#[test]
fn a_header_field_reaches_the_relay_in_every_request_and_no_result_has_its_value() {
    let out = TempDir::new().unwrap();
    let (_relay, behind) = relay(&[]);
    let guard = Guard::before(&behind, "x-api-key: s3cret/value");
    let url = format!("ws://me:s3cret@{}", guard.address);
    let given = ["--url", &url, "--header", "X-Api-Key=s3cret/value", "--header=user-agent=s3cret/1"];

    let results = out.path().join("results");
    let played = run(&results, &[&given[..], &ONE_CELL].concat()).measured();
    let searches = out.path().join("searches");
    let search = compare()
        .args(words("search --slo 'p50<30s, lost=0' --start 400 --limit 400 --probe-seconds 1 --no-curve"))
        .args(["--compressions", "none,deflate", "--out", searches.to_str().unwrap(), "--corpus"])
        .arg(few_events())
        .args(given)
        .ran()
        .measured();
    for (folder, output) in [(&results, &played), (&searches, &search)] {
        let folder = only_folder(folder);
        no_password_in(&folder, output);
        let result = fs::read_to_string(folder.join("result.json")).unwrap();
        assert!(result.contains("\"X-Api-Key=***\"") && result.contains("\"--header=user-agent=***\""));
        let records = ResultFile::read(&folder).unwrap();
        let blocks = || records.cells.iter().flat_map(|cell| &cell.blocks);
        assert!(
            blocks().all(|block| block.record.as_ref().is_some_and(|r| r.counts.deliveries > 0)),
            "{output}"
        );
    }
    let ResultFile { search: searched, config, .. } = ResultFile::read(&only_folder(&searches)).unwrap();
    let searched = searched.unwrap();
    let ids: Vec<&str> = searched.cells.iter().map(|cell| cell.cell.as_str()).collect();
    assert_eq!(ids, ["json+none", "json+deflate"], "{search}");
    assert_eq!(config.url.unwrap().to_string(), format!("ws://{}", guard.address));

    let heads = guard.heads();
    assert!(heads.iter().filter(|head| head.contains("application/nostr+json")).count() == 2, "{heads:?}");
    for head in &heads {
        assert_eq!(head.to_ascii_lowercase().matches("x-api-key: ").count(), 1, "{head}");
        assert!(head.to_ascii_lowercase().matches("user-agent: ").eq(["user-agent: "]), "{head}");
    }

    let refused = run(&results, &["--url", &url, "--header", "X-Api-Key=s3cret/other"]).ended(1);
    assert!(!refused.saying(&["403"]).said.contains("s3cret"));
}

/// Users that request a screen of notes, of which every cell sends the same.
const SCREENS: &str = r#"
question = "Does it work?"
learn = "Whether it works."
seconds = 1.0

[[request]]
connections = 24
arrival = { shape = "spread", over_ms = 1000 }
connect = "per-session"

[[request.step]]
kinds = [1]
authors = 200
known = 100
limit = 40
"#;

#[test]
#[ignore = "needs network namespaces and /dev/net/tun"]
fn a_break_even_is_searched_over_a_link() {
    let out = TempDir::new().unwrap();
    let scenario = out.path().join("screens.toml");
    fs::write(&scenario, SCREENS).unwrap();
    let results = out.path().join("results");
    let Ran { out: table, said, .. } = compare()
        .args(["search", "--by", "bandwidth", "--formats", "json,dannypack", "--scenario"])
        .arg(&scenario)
        .arg("--corpus")
        .arg(few_events())
        .args(words("--start 250 --limit 1000 --rtts 20ms --probe-seconds 1 --precision 1 --out"))
        .arg(&results)
        .ran()
        .measured();
    assert!(said.contains("dannypack+none ÷ json+none, 20 ms: 250 kbit/s for 1 s"), "{said}");
    assert!(table.contains("dannypack+none ÷ json+none"), "{table}");
    let folder = only_folder(&results);
    let ResultFile { search: found, config, .. } = ResultFile::read(&folder).unwrap();
    assert_eq!(config.client_args, ["--drain-seconds", "90"]);
    let found = found.unwrap();
    let [pair] = &found.cells[..] else { panic!("{:?}", found.cells) };
    // The smaller format is faster where bytes take the time.
    let slow = pair.probes.iter().filter(|probe| probe.rate_per_s == 250);
    assert!(slow.filter_map(|probe| probe.quotient).all(|quotient| quotient < 1.0), "{pair:?}");
}

#[test]
#[ignore = "needs user namespaces, and unshare and setpriv of util-linux"]
fn a_host_that_allows_no_namespaces_is_told_before_anything_runs_over_a_link() {
    let out = TempDir::new().unwrap();
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces
         exec setpriv --bounding-set=-all --inh-caps=-all {} run --scenario note-stream --link slow-4g --out {}",
        env!("CARGO_BIN_EXE_compare"),
        out.path().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", &script]);
    let run = command.stdin(Stdio::null()).ran().ended(6).saying(&["sudo sysctl user.max_user_namespaces"]);
    assert!(!run.said.contains("panicked"), "{run}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing was measured");
}

#[test]
fn a_signal_while_a_mute_relay_is_asked_leaves_no_process_and_no_folder() {
    let place = TempDir::new().unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", mute.local_addr().unwrap());
    for command in ["run", "search"] {
        let child = compare()
            .args([command, "--scenario", "note-stream", "--formats", "json", "--url", &url, "--out"])
            .arg(place.path().join("results"))
            .arg("--corpus")
            .arg(few_events())
            .env("TMPDIR", place.path())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut asking, _) = mute.accept().unwrap();
        send(Signal::SIGTERM, child.id());
        child.ran().ended(130).saying(&["nothing was measured"]);
        // The program that asks is gone, too: its connection ends.
        asking.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut asked = Vec::new();
        asking.read_to_end(&mut asked).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{command}");
    }
}
