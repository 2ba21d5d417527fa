//! Tests of the program against relays of its own and against peers that misbehave.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "common/certificate.rs"]
mod certificate;
mod common;
#[path = "common/events.rs"]
mod events;
#[path = "common/ran.rs"]
mod ran;
#[path = "common/scrape.rs"]
mod scrape;
#[path = "common/setup.rs"]
mod setup;

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use certificate::certificate;
use codecs::Format;
use common::Relay;
use measure::{Planted, RunRecord, Status};
use nix::sys::signal::Signal;
use ran::{Ran, Runs, send};
use scrape::{address, scrapes, value};
use setup::Setup;
use wire::Compression;

/// A scenario small enough for a debug build: three of everything.
const SMALL: &str = r#"
question = "Does it work?"
learn = "Whether it works."
seconds = 0.3

[[publish]]
connections = 2
arrival = { shape = "poisson", rate_per_s = 100 }

[[subscribe]]
connections = 3

[[subscribe.filter]]
kinds = [1, 7, 3]

[[request]]
connections = 3
arrival = { shape = "burst", period_ms = 100 }

[[request.step]]
kinds = [3]
authors = 1

[[request.step]]
kinds = [1, 3]
authors = 20
known = 5
chunk = 10
"#;

fn setup() -> Setup {
    Setup::new(SMALL, events::write_few)
}

#[test]
fn every_format_and_compression_plays_with_a_balanced_ledger() {
    let plays = |format: Format| Compression::NAMES.map(move |compression| (format, compression));
    // Only dictionaries depend on the format, and these runs take seconds.
    let once = |(format, compression): &(Format, &str)| match *compression {
        "none" => true,
        "zstd-dict" => format.spec().group != codecs::Group::Other,
        _ => matches!(format.name(), "json" | "cbor-packed"),
    };
    let all: Vec<_> = Format::all().flat_map(plays).filter(once).collect();
    // A run mostly waits.
    let played = thread::scope(|scope| {
        let parts = all.chunks(all.len().div_ceil(4));
        let threads: Vec<_> = parts.map(|part| scope.spawn(|| plays_with_a_balanced_ledger(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(played.len() == all.len() && played.iter().all(|counts| *counts == played[0]), "{played:?}");
}

#[test]
fn a_load_is_played_and_recorded_with_a_balanced_ledger() {
    let setup = setup();
    let sums = ["1", "3"].map(|load| {
        setup.run(&["--load", load]).measured();
        let record = setup.record();
        record.counts.balanced().unwrap();
        assert_eq!(record.cell.load, load);
        (record.connections, record.counts.requests)
    });
    // Two publishers, three who take from anyone, three who request.
    assert_eq!((sums[0].0, sums[1].0), (2 + 3 + 3, 6 + 3 + 9));
    assert_eq!(sums[1].1, 3 * sums[0].1, "bursts are each client's own");
    for (load, says) in [("0", "above 0 and at most 10000"), ("much", "expected a number")] {
        setup.run(&["--load", load]).ended(2).saying(&[says]);
    }
}

/// Runs the small scenario through a gateway with these flags, and checks its ledger.
fn through_a_gateway(setup: &Setup, format: &str, compression: &str, flags: &[&str]) -> RunRecord {
    let cell = ["--via", "gateway", "--format", format, "--compression", compression];
    setup.run(&[&cell, flags].concat()).measured();
    let record = setup.record();
    record.counts.balanced().unwrap();
    let found = (&*record.cell.format, &*record.cell.compression, &*record.cell.via);
    assert_eq!(found, (format, compression, "gateway"));
    assert!(record.counts.deliveries > record.counts.acked, "{:?}", record.counts);
    record
}

#[test]
fn the_ledger_balances_through_a_gateway_whose_cost_is_the_relays_and_known_apart() {
    let setup = setup();
    for (format, compression) in [
        ("json", "none"),
        ("json", "deflate"),
        ("json", "deflate-shared"),
        ("json", "zstd-dict"),
        ("dannypack", "zstd-dict"),
        ("cbor-packed", "zstd-shared"),
        ("proto-binary", "none"),
    ] {
        let record = through_a_gateway(&setup, format, compression, &[]);
        let [all, own] = [record.relay_cpu, record.gateway_cpu].map(|cpu| cpu.unwrap().total_ns);
        assert!(0 < own && own < all, "{format} {compression}: {own} of {all} ns are the gateway's");
        let memory = record.memory.unwrap();
        let before = (memory.gateway_before_bytes.unwrap(), memory.relay_before_bytes.unwrap());
        assert!(0 < before.0 && before.0 < before.1, "{before:?}");
        assert!(memory.gateway_after_bytes.unwrap() < memory.relay_after_bytes.unwrap(), "{memory:?}");
        let relay = record.relay.unwrap();
        assert_eq!((relay.own, relay.processes, &*relay.more_pids), (true, Some(2), &[][..]));
        // A client of today names no subprotocol of ours.
        let is_of_today = format == "json" && !compression.starts_with("zstd");
        assert_eq!(record.agreement.token.is_none(), is_of_today, "{:?}", record.agreement);
    }
    let record = through_a_gateway(&setup, "json", "zstd-dict", &["--saturate"]);
    assert_eq!(record.saturated.unwrap().asked, "relay");
    setup.run(&["--via", "none"]);
    assert_eq!(setup.record().gateway_cpu, None);
}

#[test]
fn a_gateway_stands_before_a_relay_of_others_that_speaks_plain_json() {
    let setup = setup();
    let relay = Relay::start(&["--keep-expired", "--format", "json"]);
    let pid = relay.child.id().to_string();
    let known = ["--url", &relay.url, "--relay-pid", &pid];
    let record = through_a_gateway(&setup, "dannypack", "zstd-dict", &known);
    assert!(record.gateway_cpu.unwrap().total_ns < record.relay_cpu.unwrap().total_ns);
    assert_eq!(record.relay.unwrap().pid, Some(relay.child.id()));
}

#[test]
fn a_gateway_that_cannot_be_is_refused_with_the_reason() {
    let setup = setup();
    for (flags, code, says) in [
        (&["--batching", "on"][..], 2, "--via gateway makes no batches"),
        (&["--floor"], 2, "leave it out with --share, --serve, --relay-at and --floor"),
        (&["--url", "ws://127.0.0.1:1/path", "--doctor", "unasked.json"], 1, "has a path"),
    ] {
        let mut command = setup.command(&["--via", "gateway"]);
        command.args(flags).current_dir(setup.path("")).ran().ended(code).saying(&[says]);
        assert!(!setup.path("record.json").exists(), "{flags:?}");
    }
}

#[test]
#[ignore = "a campaign of 9,000 idle clients; needs 20,000 descriptors"]
fn campaign_of_idle_clients_behind_a_gateway() {
    const MOST_KIB: u64 = 40;
    let setup = setup();
    // Nobody publishes what they wait for.
    let idle = SMALL.split("[[request]]").next().unwrap().replace("connections = 3", "connections = 9_000");
    setup.write("plan.toml", &idle.replace("kinds = [1, 7, 3]", "kinds = [40_404]"));
    for compression in ["none", "zstd-dict"] {
        setup.run(&["--via", "gateway", "--compression", compression]).measured();
        let memory = setup.record().memory.unwrap();
        let kib = memory.gateway_bytes_per_connection().unwrap() / 1024;
        println!("{compression}: {kib} KiB in the gateway for each of {} clients", memory.connections);
        assert!(memory.connections >= 9_000 && (1..=MOST_KIB).contains(&kib), "{memory:?}");
    }
}

/// Deliveries and requests of each run.
fn plays_with_a_balanced_ledger(cells: &[(Format, &str)]) -> Vec<(u64, u64, u64)> {
    let setup = setup();
    let play = |&(format, compression): &(Format, &str)| {
        let all = Format::all().map(Format::name).collect::<Vec<_>>().join(",");
        let cell = ["--format", format.name(), "--compression", compression, "--comparable-with", &all];
        setup.run(&cell).measured();
        let record = setup.record();
        record.counts.balanced().unwrap();
        assert_eq!(record.status, Status::Complete);
        assert_eq!(
            (record.cell.format.as_str(), record.cell.compression.as_str()),
            (format.name(), compression)
        );
        assert_eq!(record.cell.verify, "full");
        assert_eq!(record.corpus.origin, "generated");
        let relay = record.relay.as_ref().unwrap();
        assert!(relay.own && relay.pid != Some(std::process::id()));
        assert!(record.relay_cpu.is_some_and(|cpu| cpu.total_ns > 0));
        let states = record.compression_memory.map(|memory| {
            let relay = memory.relay_bytes_per_connection.unwrap() + memory.relay_shared_bytes.unwrap();
            (memory.client_bytes_per_connection + memory.client_shared_bytes, relay)
        });
        assert!(
            states.map_or(compression == "none", |(client, relay)| client > 10_000 && relay > 10_000),
            "{format} {compression}: {states:?}"
        );
        let extensions = record.agreement.extensions.as_deref().unwrap_or_default();
        assert_eq!(
            extensions.contains("permessage-deflate"),
            compression.starts_with("deflate"),
            "{extensions}"
        );
        let deliveries = (record.counts.planned, record.counts.deliveries, record.counts.requests);
        assert!(deliveries.0 > 0 && deliveries.1 > deliveries.0 && deliveries.2 > 0, "{deliveries:?}");
        deliveries
    };
    cells.iter().map(play).collect()
}

#[test]
fn clients_that_check_ids_and_signatures_balance_and_are_named() {
    let setup = setup();
    for (format, level, keeps) in [("json", "full", "bytes"), ("dannypack", "id", "text")] {
        let flags = ["--format", format, "--client-verify", level, "--client-keeps", keeps];
        setup.run(&flags).measured();
        let record = setup.record();
        let cell = &record.cell;
        assert_eq!((&*cell.client_verify, &*cell.client_keeps), (level, keeps), "{format}");
        assert!(record.counts.deliveries > 0 && record.counts.balanced().is_ok(), "{:?}", record.counts);
    }
}

#[test]
fn mistakes_are_answered_with_what_is_known_and_leave_no_record() {
    let setup = setup();
    fs::write(setup.path("broken.jsonl"), "{\"id\":\"00\"}\n").unwrap();
    setup.write("typo.toml", &SMALL.replace("seconds", "secnods"));
    let broken = setup.path("broken.jsonl").display().to_string();
    let typo = setup.path("typo.toml").display().to_string();
    let notes = "note-stream";
    let cases: [(&str, &[&str], &[&str]); 6] = [
        (notes, &["--format", "xml"], &["unknown format \"xml\"", "proto-binary"]),
        (notes, &["--compression", "lz4"], &["unknown compression \"lz4\"", "deflate-no-takeover"]),
        (notes, &["--implementation", "mine"], &["unknown implementation \"mine\"", "library tuned"]),
        ("nope", &[], &["unknown scenario \"nope\"", "follow-list-burst"]),
        (&typo, &[], &["typo.toml", "secnods"]),
        (
            notes,
            &["--corpus", &broken],
            &["broken.jsonl", "line 1", "id: expected 64", "corpus verify", "--skip-invalid"],
        ),
    ];
    for (scenario, extra, expected) in cases {
        let setup = Setup::built_in(scenario, None);
        setup.run(extra).ended(2).saying(expected);
        assert_eq!(setup.record_if_any(), None);
    }
}

#[test]
fn invalid_events_are_left_out_when_asked_and_counted_in_the_record() {
    let setup = setup();
    let mut forged = corpus::Corpus::read(&setup.path("events.jsonl")).unwrap().events.swap_remove(0);
    forged.sig[3] ^= 1;
    let mut lines = Vec::new();
    Format::JSON.spec().library.encode_event(&forged, &mut lines).unwrap();
    lines.extend(b"\n{}\nhello\n");
    lines.extend(fs::read(setup.path("events.jsonl")).unwrap());
    fs::write(setup.path("events.jsonl"), lines).unwrap();
    setup
        .run(&["--skip-invalid"])
        .measured()
        .saying(&["3 skipped that are not valid events (line 1, event "]);
    let corpus = setup.record().corpus;
    assert_eq!((corpus.events, corpus.invalid_skipped), (150, 3));
}

/// Starts a run long enough to be disturbed and waits until it has had deliveries.
fn start_long(setup: &Setup, flags: &[&str]) -> Child {
    let mut child = setup.command(&["--seconds", "30", "--progress-json"]).args(flags).spawn().unwrap();
    let mut seconds = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"samples\"") || line.contains("\"deliveries\":0,") {
        line.clear();
        assert!(seconds.read_line(&mut line).unwrap() > 0, "it ended before it delivered");
    }
    child.stdout = Some(seconds.into_inner());
    child
}

#[test]
fn a_relay_or_gateway_that_dies_leaves_a_record_that_says_so() {
    for (what, flags) in
        [("relay", &[][..]), ("gateway", &["--via", "gateway", "--compression", "zstd-dict"])]
    {
        let setup = setup();
        let run = start_long(&setup, flags);
        let role = format!("role:{what}");
        let plays = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains(&role)
        };
        let pid = measure::children(run.id()).into_iter().find(plays).unwrap();
        send(Signal::SIGKILL, pid);
        run.ran().ended(5);
        let record = setup.record();
        let Status::Incomplete { reason } = &record.status else { panic!("{:?}", record.status) };
        let how = format!("the {what}'s process {pid} ended with signal: 9 (SIGKILL)");
        assert!(reason.contains(&how), "{reason}");
        assert!(record.counts.deliveries > 0, "what was measured is kept");
        let counts = &record.counts;
        assert!(counts.unknown + counts.not_sent > 0, "what was planned and not answered is accounted for");
    }
}

#[test]
fn ctrl_c_a_closed_terminal_and_sigterm_keep_what_was_measured() {
    // A run mostly waits.
    thread::scope(|scope| {
        for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM] {
            scope.spawn(move || what_a_signal_keeps(signal));
        }
    });
}

#[test]
fn a_run_that_was_stopped_beyond_its_patience_waits_for_what_is_owed_all_the_same() {
    let setup = setup();
    // A delivery on its way when it goes on comes later than clients read after a run.
    let flags = ["--seconds", "2", "--drain-seconds", "1", "--progress-json", "--relay-fault", "delay=400ms"];
    let mut child = setup.command(&flags).stdout(Stdio::piped()).spawn().unwrap();
    let mut seconds = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(seconds.next().unwrap().unwrap().contains("\"samples\""), "the load has begun");
    send(Signal::SIGSTOP, child.id());
    std::thread::sleep(Duration::from_secs(3));
    send(Signal::SIGCONT, child.id());
    let rest = std::thread::spawn(move || seconds.count());
    let output = child.ran();
    rest.join().unwrap();
    // It measured nothing that can be believed, and lost nothing.
    output.ended(3);
    let record = setup.record();
    let counts = &record.counts;
    assert_eq!((counts.balanced(), record.status), (Ok(()), Status::Complete), "{counts:?}");
    assert_eq!((counts.acked, counts.not_sent), (counts.planned, 0), "{counts:?}");
}

fn what_a_signal_keeps(signal: Signal) {
    let setup = setup();
    let child = start_long(&setup, &[]);
    send(signal, child.id());
    let output = child.ran().ended(130);
    let record = setup.record();
    assert_eq!(record.status, Status::Interrupted);
    assert!(record.counts.deliveries > 0);
    // The relay did not lose what the user did not wait for.
    let said = output.said;
    assert!(!said.contains("does not balance") && !said.contains("lost 1"), "{said}");
    assert!(!record.validity.to_string().contains("balance"), "{:?}", record.validity);
}

#[test]
fn a_relay_behind_tls_is_measured_like_any_other_and_checked() {
    let setup = setup();
    let [cert, key] = certificate(&setup.path(""), "relay");
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let relay = Relay::start(&["--tls-cert", cert, "--tls-key", key]);
    let port = relay.url.rsplit(':').next().unwrap();
    let url = format!("wss://localhost:{port}");

    let absent = setup.path("absent.pem").display().to_string();
    setup.run(&["--url", &url, "--ca", &absent]).ended(2).saying(&["absent.pem"]);
    setup.run(&["--url", &url, "--ca", cert, "--compression", "deflate"]).measured();
    let record = setup.record();
    record.counts.balanced().unwrap();
    assert_eq!((record.status, record.cell.compression.as_str()), (Status::Complete, "deflate"));
}

#[test]
fn a_relay_that_does_no_nostr_work_plays_the_same_plan() {
    let setup = setup();
    let ledger = |extra: &[&str]| {
        setup.run(extra).measured();
        let record = setup.record();
        record.counts.balanced().unwrap();
        (record.counts, record.traffic.to_client.payload_bytes, record.relay.unwrap().is_floor)
    };
    let (counts, payload_bytes, is_floor) = ledger(&[]);
    assert!(!is_floor);
    assert!(counts.deliveries > 0 && counts.requests > 0);
    assert_eq!(ledger(&["--floor"]), (counts, payload_bytes, true));

    let refused = setup.run(&["--floor", "--format", "dannypack"]).ended(6);
    refused.saying(&["not possible with --floor: it speaks JSON"]);
}

#[test]
fn a_dictionary_of_ones_own_reaches_both_ends_and_the_record() {
    let setup = setup();
    let bytes = wire::Dictionary::bundled(Format::all().nth(1).unwrap().name()).unwrap().bytes();
    let own = wire::dictionary::of(bytes.to_vec()).unwrap();
    let file = setup.path("own.zdict");
    fs::write(&file, own.bytes()).unwrap();
    let file = file.to_str().unwrap();
    setup.run(&["--compression", "zstd-dict:level=2", "--dictionary", file]).measured();
    let record = setup.record();
    assert_eq!(record.cell.compression, "zstd-dict:level=2");
    let parameters = &record.cell.compression_parameters;
    let named = format!("dictionary={} dictionary_bytes={}", own.id(), own.bytes().len());
    assert!(parameters.starts_with("level=2 ") && parameters.ends_with(&named), "{parameters}");
    assert_eq!(record.agreement.token, Some(format!("nostr.json+zstd-dict2-{}", own.id())));

    let needless = setup.run(&["--compression", "zstd", "--dictionary", file]).ended(2);
    needless.saying(&["--dictionary is for --compression zstd-dict, not for zstd"]);
    fs::write(setup.path("wrong.zdict"), b"{}").unwrap();
    let wrong = setup.path("wrong.zdict");
    let refused = setup.run(&["--compression", "zstd-dict", "--dictionary", wrong.to_str().unwrap()]);
    refused.ended(2).saying(&["corpus train-dictionary makes one"]);
}

#[test]
fn stored_events_are_sent_before_the_clock_starts_and_published_ones_are_encoded_once() {
    let setup = setup();
    for flags in [["--format", "json"].as_slice(), &["--format", "capnp", "--batching", "on"], &["--floor"]] {
        let output = setup.run(flags);
        let record = setup.record();
        if flags == ["--floor"] {
            assert_eq!((record.encodings, record.first_delivery), (None, None));
            continue;
        }
        let (encodings, first) = (record.encodings.unwrap(), record.first_delivery.unwrap());
        let delivered = encodings.cold + encodings.cached;
        // More where a published event matches a request between its EOSE and its CLOSE.
        assert!(delivered >= record.counts.deliveries, "{flags:?}: {}", output.said);
        // Sessions ask for stored events alone; what is published has its first delivery meanwhile.
        assert!((1..=record.counts.planned).contains(&encodings.cold), "{encodings:?}");
        assert!(first.events > 5 && first.cold_ns > 0 && first.warm_ns.len() == 3, "{first:?}");
    }
    let only_requests = SMALL.split("[[publish]]").next().unwrap().to_owned()
        + "[[request]]"
        + SMALL.split("[[request]]").nth(1).unwrap();
    setup.write("plan.toml", &only_requests);
    let output = setup.run(&["--format", "notepack"]);
    let record = setup.record();
    let encodings = record.encodings.unwrap();
    assert!(record.counts.deliveries > 0);
    assert_eq!((encodings.cold, encodings.cached), (0, record.counts.deliveries), "{}", output.said);
}

#[test]
fn envelope_throughput_is_recorded_by_interval_and_adds_up_to_what_came() {
    let setup = setup();
    setup.write("plan.toml", &SMALL.replace("seconds = 0.3", "seconds = 1.3"));
    let output = setup.run(&["--workers", "2"]);
    let record = setup.record();
    let found = record.throughput.unwrap();
    let (rates, bytes) = (&found.envelopes_per_s, &found.wire_bytes_per_s);
    assert_eq!(rates.len(), bytes.len(), "{}", output.said);
    let measured_ns = rates.len() * found.interval_ns;
    assert!((200_000_000..=1_300_000_000).contains(&measured_ns), "{found:?}");
    assert!(rates.max_ns() > 0 && bytes.max_ns() > rates.max_ns(), "{found:?}");
    // No interval has more than what came in all.
    let most = |rate: u64| rate * found.interval_ns / 1_000_000_000;
    assert!(most(rates.max_ns()) <= record.counts.deliveries + 1, "{found:?}");
    assert!(most(bytes.max_ns()) <= record.traffic.to_client.wire_bytes * 1_001 / 1_000, "{found:?}");
}

#[test]
fn batches_are_asked_for_and_accounted_for() {
    let setup = setup();
    for format in [Format::JSON, "proto-binary".parse().unwrap()] {
        setup.run(&["--format", format.name(), "--batching", "on:ms=20:n=9"]).measured();
        let record = setup.record();
        record.counts.balanced().unwrap();
        assert_eq!(record.cell.batching, "ms=20 n=9 bytes=65536");
        assert_eq!(record.agreement.token, Some(format!("{}.batched", format.spec().token)));
        let (messages, counts) = (record.traffic.to_client.messages, record.counts);
        assert!(
            messages < counts.deliveries + counts.planned,
            "{messages} messages: some carried several events"
        );
        assert_eq!(record.allocations.is_some(), cfg!(feature = "count-allocations"));
        let slices = record.slices.unwrap();
        assert_eq!(
            (slices.of.as_str(), slices.seconds.len()),
            ("response", 0),
            "no whole second was planned"
        );
    }
}

/// `cargo test -p client-sim --features count-allocations --test programs allocat`
#[test]
#[cfg(feature = "count-allocations")]
fn both_ends_count_what_they_allocate_and_the_run_is_suspect() {
    let setup = setup();
    setup.run(&["--format", "json"]).measured();
    let record = setup.record();
    let (allocations, deliveries) = (record.allocations.unwrap(), record.counts.deliveries);
    for one in [allocations.client, allocations.relay.unwrap()] {
        assert!(
            one.count > deliveries / 10 && one.bytes > one.count,
            "{allocations:?}, {deliveries} deliveries"
        );
    }
    let reasons = record.validity.to_string();
    assert!(reasons.contains("allocations were counted"), "{reasons}");
}

#[test]
fn a_latency_beyond_what_the_scenario_demands_is_exit_code_99_and_no_invalid_run() {
    let setup = setup();
    let demanding = fs::read_to_string(setup.path("plan.toml")).unwrap()
        + "\n[expect]\nresponse_ms_p50 = { max = 0.000001 }\neose_ms_p50 = { max = 60000 }\n";
    setup.write("plan.toml", &demanding);
    let Ran { code, said, .. } = setup.run(&[]);
    let record = setup.record();
    assert!(said.contains("the scenario demands response_ms_p50<=0.000001, and it was "), "{said}");
    let missed: Vec<String> = record.missed_bounds().map(|(bound, _)| bound.metric.clone()).collect();
    assert_eq!(missed, ["response"]);
    assert!(!record.validity.to_string().contains("response_ms_p50"), "{:?}", record.validity);
    // A busy machine may make the run invalid, which comes first.
    assert!(matches!(code, Some(99 | 3)), "{code:?}: {said}");
}

#[test]
fn progress_for_programs_is_a_line_of_json_a_second() {
    let setup = setup();
    let text = setup.run(&["--seconds", "2.5", "--progress-json"]).out;
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!((2..=4).contains(&lines.len()), "{text}");
    for (at, line) in (1..).zip(&lines) {
        assert_eq!((&line["second"], &line["of"]), (&at.into(), &3.0.into()), "{text}");
    }
    let sent: Vec<_> = lines.iter().map(|line| line["so_far"]["sent"].as_u64().unwrap()).collect();
    assert!(sent.is_sorted() && sent.last() > sent.first(), "{text}");
    let samples: u64 = lines.iter().map(|line| line["samples"].as_u64().unwrap()).sum();
    assert!(samples > 0 && lines.iter().any(|line| line["latency_ns_p99"].as_u64() > Some(0)), "{text}");
    let slices = setup.record().slices.unwrap();
    assert_eq!(slices.seconds.len(), 2, "{slices:?}");
    assert!(
        slices.seconds.iter().all(|slice| slice.samples > 0 && slice.latency_ns_p50.is_some()),
        "{slices:?}"
    );
}

#[test]
fn a_run_is_scraped_while_it_lasts() {
    let setup = setup();
    let mut run = setup.command(&["--seconds", "2.5", "--metrics-listen", "0", "--quiet"]).spawn().unwrap();
    let (address, _said) = address(run.stderr.take().unwrap());
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let scrapes = scrapes(&address);
    assert!(matches!(run.wait().unwrap().code(), Some(0 | 3)));
    let last = scrapes.last().unwrap();
    let types: Vec<&str> = last.lines().filter_map(|line| line.strip_prefix("# TYPE nsim_")).collect();
    assert_eq!(
        types,
        [
            "connections gauge",
            "events_sent counter",
            "deliveries counter",
            "delivery_latency_p99_seconds gauge",
            "cpu_seconds counter",
            "blocks counter"
        ]
    );
    for sample in [
        "nsim_events_sent_total",
        "nsim_deliveries_total",
        "nsim_cpu_seconds_total{process=\"relay\"}",
        "nsim_cpu_seconds_total{process=\"clients\"}",
    ] {
        let values: Vec<f64> = scrapes.iter().map(|text| value(text, sample)).collect();
        assert!(
            values.is_sorted() && values.windows(2).any(|pair| pair[0] < pair[1]),
            "{sample}: {values:?}"
        );
    }
    let latency = |text: &String| value(text, "nsim_delivery_latency_p99_seconds") > 0.0;
    assert!(scrapes.iter().any(latency) && value(last, "nsim_connections") > 0.0, "{last}");
    let record = setup.record();
    assert!(value(last, "nsim_events_sent_total") <= record.counts.planned as f64);
    assert!(record.command.iter().any(|word| word == "--metrics-listen"), "{:?}", record.command);
}

#[test]
fn an_address_in_use_is_refused_before_the_run() {
    let setup = setup();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for address in [address.as_str(), "nowhere"] {
        let says = format!("cannot listen on --metrics-listen {address}");
        setup.run(&["--metrics-listen", address]).ended(2).saying(&[&says]);
        assert!(!setup.path("record.json").exists());
    }
}

#[test]
fn the_summary_or_the_record_is_on_standard_output_and_everything_else_on_standard_error() {
    const SUMMARY: &str = "  plan        ";
    const PROGRESS: &str = " s of 1 s, ";
    let setup = setup();
    for (flags, summary, record, progress) in [
        (&[][..], true, false, true),
        (&["--quiet"], false, false, false),
        (&["--json"], false, true, true),
        (&["--json", "--quiet"], false, true, false),
    ] {
        let Ran { out, said, .. } = setup.run(&[&["--seconds", "1.4"], flags].concat()).measured();
        assert_eq!((out.starts_with(SUMMARY), said.contains(SUMMARY)), (summary, false), "{flags:?}: {out}");
        if summary {
            assert!(out.lines().count() <= 20 && out.lines().all(|line| line.chars().count() <= 80), "{out}");
        }
        let written = fs::read_to_string(setup.path("record.json")).unwrap();
        assert_eq!(out == written, record, "{flags:?}: {out}");
        assert_eq!(out.is_empty(), !summary && !record, "{flags:?}: {out}");
        assert_eq!((out.contains(PROGRESS), said.contains(PROGRESS)), (false, progress), "{flags:?}: {said}");
    }

    let spoilt = setup.run(&["--relay-fault", "lose=20%:seed=3", "--drain-seconds", "1"]).ended(4);
    assert!(spoilt.out.starts_with(SUMMARY), "{}", spoilt.out);
    for part in ["(--ledger FILE names all)", "lost 1 of "] {
        assert!(!spoilt.out.contains(part) && spoilt.said.contains(part), "{}", spoilt.said);
    }
    let mute = setup.run(&["--relay-fault", "no-ok:connection=2-", "--drain-seconds", "1"]).ended(3);
    assert!(mute.out.contains("planned events got no OK"), "{}", mute.out);
}

#[test]
fn a_result_that_cannot_be_printed_is_an_error_and_a_reader_that_left_is_none() {
    let setup = setup();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    setup.command(&["--json"]).stdout(full).ran().ended(1).saying(&["cannot write to standard output"]);
    setup.record().counts.balanced().unwrap();

    let mut child = setup.command(&[]).spawn().unwrap();
    drop(child.stdout.take());
    child.ran().measured();

    let refused = setup.run(&["--json", "--progress-json"]);
    assert_eq!(refused.ended(2).saying(&["cannot be used with"]).out, "");
}

#[test]
fn what_the_relay_spoils_is_counted_exactly_and_ends_with_exit_code_4() {
    let setup = setup();
    // Every delivery is owed: nobody publishes what sessions ask for.
    setup.write("plan.toml", &SMALL.replace("kinds = [1, 3]", "kinds = [0]"));
    let keeps_bytes = &["--implementation=tuned", "--client-keeps=bytes"];
    for (format, compression, more) in [
        ("json", "deflate", &[][..]),
        ("capnp", "none", &["--batching=on"]),
        ("notepack", "zstd", &[]),
        ("json", "none", keeps_bytes),
        ("cbor-packed", "zstd", keeps_bytes),
    ] {
        let mut flags = vec!["--format", format, "--compression", compression, "--drain-seconds", "1"];
        flags.extend(more);
        let faults =
            ["lose", "double", "alter", "invent", "misroute"].map(|fault| format!("{fault}=5%:seed=3"));
        faults.iter().for_each(|fault| flags.extend(["--relay-fault", fault]));
        let ledger = setup.path("ledger.jsonl");
        flags.extend(["--ledger", ledger.to_str().unwrap()]);
        let output = setup.run(&flags);
        let record = setup.record();
        let planted = record.relay.unwrap().planted.unwrap();
        let counts = record.counts;
        let found = Planted {
            lost: counts.deliveries_lost - counts.deliveries_altered - counts.deliveries_misrouted,
            doubled: counts.deliveries_duplicated,
            altered: counts.deliveries_altered,
            invented: counts.deliveries_invented,
            misrouted: counts.deliveries_misrouted,
        };
        assert_eq!(found, planted, "{format}+{compression}");
        assert!(planted.lost + planted.doubled + planted.altered > 0, "{planted:?}");
        let text = output.ended(4).said;
        let ledger = fs::read_to_string(ledger).unwrap();
        let lines: Vec<serde_json::Value> =
            ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (wrong, count) in [
            ("lost", counts.deliveries_lost),
            ("duplicated", counts.deliveries_duplicated),
            ("altered", counts.deliveries_altered),
            ("misrouted", counts.deliveries_misrouted),
            ("invented", counts.deliveries_invented),
        ] {
            let is_one = |line: &&serde_json::Value| line["wrong"] == wrong && line["before_start"].is_null();
            let written = lines.iter().filter(is_one);
            assert_eq!(written.count() as u64, count, "{wrong} in {format}+{compression}");
            let named = text.matches(&format!("of {count}: ")).count() as u64;
            assert!(named >= count.min(5), "{wrong}: {text}");
        }
        let before = lines.iter().filter(|line| line["before_start"] == true).count() as u64;
        assert_eq!(before, counts.deliveries_wrong_before_start, "{format}+{compression}");
        let lost = lines.iter().find(|line| line["wrong"] == "lost").unwrap();
        assert!(lost["filter"].is_object() && lost["kind"].is_number(), "{lost}");
        assert_eq!(lost["id"].as_str().unwrap().len(), 64, "{lost}");
    }
}
