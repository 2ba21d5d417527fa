//! `compare plan`: needs and money by hand arithmetic, and what it refuses.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Output},
    sync::LazyLock,
    thread,
};

use measure::{MemoryRecord, RunRecord};
use report::{
    CellResult, ResultFile, Role,
    plan::{Demand, Needs, Plan, PriceBook, Resource, Scale},
};
use tempfile::TempDir;

use crate::{
    common::{PLAIN, Run, compare, only_folder, record, result},
    few::few_events,
    help::words,
    ran::Runs,
};

/// 4,000 deliveries of 1,000 publishes in 1.6 s to 20 connections; CBOR takes two thirds of JSON's CPU.
static MEASURED: LazyLock<ResultFile> = LazyLock::new(|| {
    result("standard", 6, &["cbor-packed+none"], |id, round, _| {
        let is_cbor = id.starts_with("cbor");
        let mut record =
            record(id, round.into(), Run { relay_us_per_event: if is_cbor { 40 } else { 60 }, ..PLAIN });
        let relay_after_bytes = Some((16 << 20) + 20 * (32 << 10));
        record.memory = Some(MemoryRecord {
            connections: 20,
            client_before_bytes: 0,
            client_after_bytes: 0,
            relay_before_bytes: Some(16 << 20),
            relay_after_bytes,
            relay_peak_bytes: relay_after_bytes,
            relay_file_bytes: None,
            gateway_before_bytes: None,
            gateway_after_bytes: None,
        });
        record
    })
});

const PRICES: &str = r#"
date = "2026-01-01"
currency = "EUR"

[[providers]]
name = "by the byte"
machine = "m"
vcpus = 4
memory_gib = 16
network_mbit_per_s = 5000
per_month = 100
free_tb = 0.1
traffic_per_currency = 1.25
traffic = [{ up_to_tb = 10, per_gb = 0.09 }, { per_gb = 0.08 }]
sources = ["a test"]

[[providers]]
name = "included"
machine = "n"
vcpus = 4
memory_gib = 16
per_month = 50
included_tb_per_machine = 10
traffic = [{ per_gb = 0.001 }]
sources = ["a test"]
"#;

fn prices() -> PriceBook {
    let book: PriceBook = toml::from_str(PRICES).unwrap();
    book.check().unwrap();
    book
}

/// Twice what was measured of everything.
fn twice() -> Demand {
    Demand {
        connections: 40.0,
        deliveries_per_s: 5_000.0,
        publishes_per_s: 1_250.0,
        relay_cores: None,
        speaks: None,
        source: String::new(),
    }
}

fn planned(demand: Demand) -> Vec<Scale> {
    Plan::new(&MEASURED, demand, prices()).unwrap().scales
}

fn is(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 1e-9, "{value}, expected {expected}");
}

#[test]
fn needs_and_money_are_those_of_hand_arithmetic() {
    let scales = planned(twice());
    assert_eq!(
        scales.iter().map(|scale| scale.cells.len()).collect::<Vec<_>>(),
        [2, 2, 2],
        "no control, no floor"
    );
    let json = &scales[0].cells[0];
    assert_eq!((json.cell.as_str(), json.extrapolated.len()), ("json+none", 0));
    // 5,000 × 60 µs.
    is(json.cores.unwrap(), 0.3);
    is(json.memory_bytes.unwrap(), f64::from((16 << 20) + 40 * (32 << 10)));
    // To clients 675 bytes a delivery, sealed 697, in one packet 749. From clients four messages of 225
    // bytes for each publish, 299 each. 26 bytes acknowledge each packet of the other side.
    let (out, back) = (5_000.0 * 749.0 + 5_000.0 * 26.0, 5_000.0 * 299.0 + 5_000.0 * 26.0);
    is(json.out_mbit_per_s, out * 8.0 / 1e6);
    is(json.in_mbit_per_s, back * 8.0 / 1e6);
    let tb = out * 730.0 * 3_600.0 / 1e12;
    is(json.out_tb_per_month, tb);
    // 10.18 TB: 0.1 free, 9.9 at 90 a TB, the rest at 80; or 10 free, the rest at 1.
    let [by_byte, included] = &json.costs[..] else { panic!("{:?}", json.costs) };
    is(by_byte.traffic_per_month, (9.9 * 90.0 + (tb - 10.0) * 80.0) / 1.25);
    is(by_byte.per_month(), 100.0 + by_byte.traffic_per_month);
    is(included.per_month(), 50.0 + (tb - 10.0));
    assert_eq!((by_byte.binding, by_byte.machines), (Some(Resource::Cores), 1.0));
    is(scales[0].cells[1].cores.unwrap(), 0.2);
}

#[test]
fn larger_sizes_are_extrapolated_and_say_so_and_rent_what_binds() {
    let scales = planned(twice());
    let million = &scales[2];
    assert_eq!((million.name.as_str(), million.connections), ("At 10^6 connections", 1e6));
    let json = &million.cells[0];
    let beyond: Vec<_> = json.extrapolated.iter().map(|one| (one.what, one.times.unwrap())).collect();
    assert_eq!(beyond, [("connections", 50_000.0), ("deliveries/s", 50_000.0)]);
    // 7,500 cores are 1,875 machines of 4; 30.5 GiB would be 2, 97 Gbit/s 20.
    let cost = &json.costs[0];
    assert_eq!((cost.binding, cost.machines), (Some(Resource::Cores), 1_875.0));
    let order: Vec<_> = cost.machines_by_resource.iter().map(|(resource, _)| *resource).collect();
    assert_eq!(order, [Resource::Cores, Resource::Network, Resource::Memory]);
    // Few deliveries to many connections: memory binds.
    let idle = planned(Demand { deliveries_per_s: 0.001, publishes_per_s: 0.001, ..twice() });
    let json = &idle[2].cells[0];
    assert_eq!((json.costs[0].binding, json.costs[0].machines), (Some(Resource::Memory), 2.0));
    let what = |needs: &Needs| needs.extrapolated.iter().map(|one| one.what).collect::<Vec<_>>();
    assert_eq!(what(json), ["connections", "publishes per delivery"]);
    let text = Plan::new(&MEASURED, twice(), prices()).unwrap().terminal(Some(120));
    assert!(text.contains("Today: 40 connections, 5,000 deliveries/s, 1,250 publishes/s\n"), "{text}");
    assert!(
        text.contains("\njson+none         cores") && text.contains("\njson+none *         cores"),
        "{text}"
    );
    assert!(text.contains("* extrapolated beyond what was measured: connections 50,000 times"), "{text}");
    for assumption in
        ["TLS 1.3 adds 22 bytes", "Prices of 2026-01-01 in EUR", "Sources: a test", "nothing is kept free"]
    {
        let folded = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(folded.contains(assumption), "{assumption}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn cores_of_the_operator_are_multiplied_by_the_ratio_to_what_the_relay_speaks() {
    let of = |speaks: Option<&str>| {
        let demand = Demand { relay_cores: Some(3.0), speaks: speaks.map(str::to_owned), ..twice() };
        planned(demand)[0].cells.iter().map(|cell| cell.cores.unwrap()).collect::<Vec<_>>()
    };
    let [json, cbor] = of(None)[..] else { panic!("two cells") };
    is(json, 3.0);
    is(cbor, 2.0);
    is(of(Some("cbor-packed+none"))[0], 4.5);
    let unknown = Demand { relay_cores: Some(3.0), speaks: Some("json+gzip".to_owned()), ..twice() };
    let error = Plan::new(&MEASURED, unknown, prices()).unwrap_err().to_string();
    assert!(error.contains("\"json+gzip\"") && error.contains("json+none cbor-packed+none"), "{error}");
}

#[test]
fn a_price_book_that_cannot_be_reckoned_with_is_refused() {
    for (from, to, says) in [
        ("vcpus = 4", "vcpus = 0", "by the byte: vcpus"),
        ("per_month = 50", "per_month = -1", "included: prices"),
        ("per_month = 50", "per_month = nan", "included: prices"),
        ("{ per_gb = 0.08 }", "{ up_to_tb = 5, per_gb = 0.08 }", "ascends"),
        ("sources = [\"a test\"]\n\n", "sources = []\n\n", "where its prices stand"),
    ] {
        let text = PRICES.replacen(from, to, 1);
        assert_ne!(text, PRICES, "{from}");
        let error = toml::from_str::<PriceBook>(&text).unwrap().check().unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
    }
}

fn plan(result: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_compare")).arg("plan").arg(result).args(args).output().unwrap()
}

/// strfry's metrics after so many events. Before the first stored one it does not count them.
fn metrics(published: u32, stored: u32, written: u32) -> String {
    let stored = match stored {
        0 => String::new(),
        stored => format!("nostr_relay_messages_total{{verb=\"EVENT\"}} {stored}\n"),
    };
    format!(
        "# TYPE nostr_client_messages_total counter\n\
         nostr_client_messages_total{{verb=\"EVENT\"}} {published}\n\
         nostr_client_messages_total{{verb=\"REQ\"}} 9\n\
         # TYPE nostr_relay_messages_total counter\n\
         nostr_relay_messages_total{{verb=\"EOSE\"}} 9\n\
         {stored}\
         # TYPE strfry_write_events_total counter\n\
         strfry_write_events_total {written}\n\
         # TYPE strfry_connections_current gauge\n\
         strfry_connections_current 40\n"
    )
}

fn file_in(folder: &TempDir, name: &str, text: &str) -> String {
    let file = folder.path().join(name);
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn rates_of_a_strfry_are_read_twice_from_files_and_from_its_address() {
    let folder = TempDir::new().unwrap();
    MEASURED.write(folder.path()).unwrap();
    let file = |name: &str, text: &str| file_in(&folder, name, text);
    let (before, after) = (file("before", &metrics(100, 0, 100)), file("after", &metrics(160, 600, 130)));
    let of_files =
        ["--from-strfry", &before, "--from-strfry", &after, "--over", "30", "--fan-out", "10", "--json"];
    let planned = plan(folder.path(), &of_files);
    let json: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    // 20 stored a second, and one new event a second to ten subscribers.
    let demand = &json["demand"];
    assert_eq!(
        (&demand["deliveries_per_s"], &demand["publishes_per_s"]),
        (&30.0.into(), &2.0.into()),
        "{json}"
    );
    assert_eq!(demand["connections"], 40.0);
    assert_eq!(json["prices"]["providers"].as_array().unwrap().len(), 2, "the bundled book");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let served = thread::spawn(move || {
        [metrics(0, 0, 0), metrics(9_000, 90_000, 9_000)].map(|text| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4_096];
            let length = stream.read(&mut request).unwrap();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            )
            .unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        })
    });
    let planned = plan(folder.path(), &["--from-strfry", &url, "--over", "1", "--fan-out", "2"]);
    let text = String::from_utf8_lossy(&planned.stdout);
    assert!(planned.status.success() && text.contains("Today: 40 connections"), "{planned:?}");
    for request in served.join().unwrap() {
        assert!(request.starts_with("GET /metrics ") && !request.contains("nostr+json"), "{request}");
    }
}

#[test]
fn what_gives_no_rates_is_refused_with_its_reason() {
    let folder = TempDir::new().unwrap();
    MEASURED.write(folder.path()).unwrap();
    let file = |name: &str, text: &str| file_in(&folder, name, text);
    let (some, page) = (file("some", &metrics(100, 10, 100)), file("page", "<html>\u{1b}[2J</html>"));
    let rates = ["--connections", "5", "--publishes-per-second", "2"];
    let twice = |one: &str, other: &str| format!("--from-strfry {one} --from-strfry {other} --fan-out 1");
    for (args, says) in [
        (twice(&page, &page), "it has no nostr_client_messages_total"),
        (twice(&some, &file("fewer", &metrics(99, 10, 100))), "nostr_client_messages_total fell"),
        (twice(&some, &some), "nothing to plan for"),
        (twice(&some, "missing"), "--from-strfry missing: cannot read it"),
        (format!("{} --from-strfry {some}", twice(&some, &some)), "twice at most"),
        (twice("http://me:s3cret@127.0.0.1:1/", &some), "--from-strfry"),
        (format!("--from-strfry {some}"), "--fan-out"),
        (
            format!("{} --deliveries-per-second 3 --fan-out 4", rates.join(" ")),
            "more than --deliveries-per-second 3",
        ),
        (rates.join(" "), "--deliveries-per-second"),
        (format!("{} --fan-out 0", rates.join(" ")), "a number above 0"),
        (format!("{} --fan-out nan", rates.join(" ")), "a number above 0"),
        (format!("{} --fan-out 2 --prices {page}", rates.join(" ")), "--prices"),
    ] {
        let refused = plan(folder.path(), &args.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{args}: {said}");
        assert!(
            said.contains(says) && !said.contains("s3cret") && !said.contains('\u{1b}'),
            "{args}: {said}"
        );
        assert!(refused.stdout.is_empty());
    }
}

/// A short run against relay-sim, whose load the last word says.
fn played(corpus: Option<&Path>, args: &str, load: &str) -> ResultFile {
    let out = TempDir::new().unwrap();
    let mut run = compare();
    run.args(["run", "--quiet", "--out"]).arg(out.path());
    run.args(corpus.into_iter().flat_map(|file| [Path::new("--corpus"), file]));
    run.args(words(args)).arg(load).ran().measured();
    ResultFile::read(&only_folder(out.path())).unwrap()
}

/// What a cell took, over all of its blocks.
struct Taken {
    demand: Demand,
    cores: f64,
    /// Of WebSocket, without headers of TCP and TLS.
    out_mbit_per_s: f64,
    memory_bytes: f64,
}

impl Taken {
    fn new(cell: &CellResult) -> Taken {
        let records: Vec<&RunRecord> = cell.blocks.iter().filter_map(|block| block.record.as_ref()).collect();
        let sum = |of: fn(&RunRecord) -> u64| records.iter().map(|one| of(one)).sum::<u64>() as f64;
        let seconds = sum(|one| one.active_ns) / 1e9;
        let demand = Demand {
            connections: records[0].connections as f64,
            deliveries_per_s: sum(|one| one.counts.deliveries) / seconds,
            publishes_per_s: sum(|one| one.counts.acked) / seconds,
            relay_cores: None,
            speaks: None,
            source: String::new(),
        };
        let memory = records[0].memory.and_then(|memory| memory.relay_after_bytes);
        Taken {
            demand,
            cores: sum(|one| one.relay_cpu.unwrap().total_ns) / 1e9 / seconds,
            out_mbit_per_s: sum(|one| one.traffic.to_client.wire_bytes) * 8.0 / 1e6 / seconds,
            memory_bytes: memory.unwrap() as f64,
        }
    }
}

/// What the lesser of two loads plans for each cell of the greater one, and what that took.
fn foretold(corpus: Option<&Path>, args: &str, loads: [&str; 2]) -> Vec<(Needs, Taken)> {
    let [less, more] = loads.map(|load| played(corpus, args, load));
    let is_planned = |cell: &&CellResult| matches!(cell.role, Role::Anchor | Role::Cell);
    let beside = |cell: &CellResult| {
        let taken = Taken::new(cell);
        let scales = Plan::new(&less, taken.demand.clone(), prices()).unwrap().scales;
        let needs = scales[0].cells.iter().find(|needs| needs.cell == cell.id).unwrap();
        (needs.clone(), taken)
    };
    more.cells.iter().filter(is_planned).map(beside).collect()
}

/// Bytes do not depend on how busy the machine is.
#[test]
fn traffic_of_a_plan_is_what_relay_sim_sends_at_the_planned_rate() {
    let args = "--scenario note-stream --formats json --compressions none --rounds 1 --seconds 1 -- --rate 200 --set";
    let found = foretold(Some(few_events()), args, ["subscribe.connections=8", "subscribe.connections=14"]);
    let [(needs, taken)] = &found[..] else { panic!("{} cells", found.len()) };
    assert_eq!(taken.demand.connections, 15.0);
    // A note is one packet, with 74 bytes of headers and seal. An eighth of an `OK` comes with each, and less
    // than one acknowledgement.
    let headers = (needs.out_mbit_per_s - taken.out_mbit_per_s) * 1e6 / 8.0 / taken.demand.deliveries_per_s;
    assert!((75.0..105.0).contains(&headers), "{headers} bytes of headers a delivery");
}

/// Most that busy cores and memory may differ from a plan by half of the load, either way.
const WITHIN: f64 = 1.5;

#[test]
#[ignore = "five minutes: cargo test --release -p compare --test it -- --ignored campaign_a_plan"]
fn campaign_a_plan_is_what_relay_sim_takes_at_the_planned_rate() {
    let args = "--scenario mixed-day --implementation tuned --formats json,dannypack --compressions none,zstd-dict \
                --rounds 3 --seconds 4";
    for (needs, taken) in foretold(None, args, ["--load=2", "--load=3"]) {
        let (cores, memory) = (needs.cores.unwrap(), needs.memory_bytes.unwrap());
        println!(
            "{}: {cores:.3} cores planned, {:.3} taken; {:.1} MiB planned, {:.1} taken",
            needs.cell,
            taken.cores,
            memory / f64::from(1 << 20),
            taken.memory_bytes / f64::from(1 << 20),
        );
        assert!(needs.extrapolated.is_empty(), "{needs:?}");
        for ratio in [cores / taken.cores, memory / taken.memory_bytes] {
            assert!((1.0 / WITHIN..WITHIN).contains(&ratio), "{}: {ratio:.2}", needs.cell);
        }
    }
}
