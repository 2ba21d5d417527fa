//! The table of factors.

use clap::{Arg, ValueEnum};
use codecs::{Format, Implementation, UnknownName};
use measure::{NO_GATEWAY, NO_LINK, NOT_SATURATED};
use terms::{Compression, Reencode};

use crate::{Batching, Cell, RelaySide, Saturate, UNKNOWN, batching::NO_BATCHES, stem};

/// A property in which cells differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Factor {
    /// See [`Cell::format`].
    Format,
    /// See [`Cell::compression`].
    Compression,
    /// See [`Cell::batching`].
    Batching,
    /// See [`Cell::implementation`].
    Implementation,
    /// See [`RelaySide::verify`].
    Verify,
    /// See [`RelaySide::reencode`].
    Reencode,
    /// See [`RelaySide::threads`].
    RelayThreads,
    /// See [`Cell::relay_name`].
    Relay,
    /// See [`Cell::via_gateway`].
    Via,
    /// See [`Cell::client_verify`].
    ClientVerify,
    /// See [`Cell::client_keeps_bytes`].
    ClientKeeps,
    /// See [`Cell::scenario`].
    Scenario,
    /// See [`Cell::rate_per_s`].
    Rate,
    /// See [`Cell::load`].
    Load,
    /// See [`Cell::saturate`].
    Saturate,
    /// See [`Cell::link`].
    Link,
}

/// Whose property a factor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Terms that both ends agree on, or how they are written.
    Wire,
    /// The relay's own setting, which another's relay does not tell.
    Relay,
    /// The clients' own setting, and their way to the relay.
    Clients,
    /// Which relay it is, where a run starts several: what compares is the same in all else.
    Program,
    /// The load: cells compare only under the same one.
    Load,
}

/// A factor as every program knows it.
#[derive(Debug)]
pub struct Row {
    /// Its one name: its flag, its key in `--cell`, and with spaces the heading of
    /// its column.
    pub name: &'static str,
    /// Whose property it is.
    pub side: Side,
    /// The word for its value in help.
    pub value_name: &'static str,
    /// Help of both flags in one line.
    pub help: &'static str,
    /// The part of its help that only `--help` shows; may be empty.
    pub details: &'static str,
    /// Left out of `-h`.
    pub is_rare: bool,
    /// Flags of client-sim that leave no choice.
    pub(crate) conflicts: &'static [&'static str],
    /// The names that a matrix may have, in the order of tables. Empty if values are not names, or keep
    /// the order in which they are given.
    pub names: fn() -> Vec<&'static str>,
    /// Words of a matrix that stand for several values, next to `all`.
    pub(crate) families: fn() -> Vec<(&'static str, Vec<&'static str>)>,
    /// Puts a value into a cell, or returns the values that are allowed.
    pub read: fn(&mut Cell, &str) -> Result<(), String>,
    /// The text that `read` takes.
    pub write: fn(&Cell) -> String,
    /// The value in a record; `None` where records have it elsewhere.
    pub recorded: fn(&measure::Cell) -> Option<&str>,
    /// Its part of the name of a cell, where a matrix has several values.
    pub in_id: fn(&str) -> String,
}

/// The defaults of a row, for a factor whose values are numbers or have no names.
const PLAIN: Row = Row {
    name: "",
    side: Side::Load,
    value_name: "",
    help: "",
    details: "",
    is_rare: false,
    conflicts: &[],
    names: Vec::new,
    families: Vec::new,
    read: |_, _| Ok(()),
    write: |_| String::new(),
    recorded: |_| None,
    in_id: str::to_owned,
};

impl Factor {
    /// Every factor, in the order of names and columns.
    pub const ALL: [Factor; 16] = [
        Factor::Format,
        Factor::Compression,
        Factor::Batching,
        Factor::Implementation,
        Factor::Verify,
        Factor::Reencode,
        Factor::RelayThreads,
        Factor::Relay,
        Factor::Via,
        Factor::ClientVerify,
        Factor::ClientKeeps,
        Factor::Scenario,
        Factor::Rate,
        Factor::Load,
        Factor::Saturate,
        Factor::Link,
    ];

    /// The factors of one side, in their order.
    pub fn on_side(side: Side) -> impl Iterator<Item = Factor> {
        Factor::ALL.into_iter().filter(move |factor| factor.row().side == side)
    }

    /// Every factor, in the order of help.
    pub fn in_help() -> [Factor; Factor::ALL.len()] {
        let mut all = Factor::ALL;
        all.sort_by_key(|factor| (factor.row().help_heading().0, factor.row().side != Side::Load));
        all
    }

    /// Its row in the table of factors.
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// A value in its written form.
    ///
    /// # Errors
    /// Names the values that are allowed.
    pub fn normalised(self, text: &str) -> Result<String, String> {
        let mut cell = Cell::default();
        (self.row().read)(&mut cell, text)?;
        Ok((self.row().write)(&cell))
    }
}

impl Row {
    /// The parts of its flag's help that client-sim and compare share: `-h` shows `more` and the
    /// standing value beside one line, `--help` the details, too.
    pub fn described(&self, arg: Arg, standing: &str, more: &str) -> Arg {
        let standing = if standing.is_empty() { String::new() } else { format!(" [default: {standing}]") };
        let help = format!("{}{standing}", self.help);
        let details = [self.details, more].map(str::trim).join(" ");
        let arg = arg.help_heading(self.help_heading().1).hide_short_help(self.is_rare);
        match details.trim() {
            "" => arg.help(help),
            details => arg.long_help(format!("{help}\n\n{details}")).help(help),
        }
    }

    /// The flag of relay-sim, which need not say whose it is.
    pub fn relay_flag(&self) -> &'static str {
        self.name.strip_prefix("relay-").unwrap_or(self.name)
    }

    /// The heading of its column, where several values stand in one table.
    pub fn heading(&self) -> String {
        self.name.replace('-', " ")
    }

    /// Words of a matrix that stand for several values.
    pub fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let (mut groups, names) = ((self.families)(), (self.names)());
        groups.extend((!names.is_empty()).then_some(("all", names)));
        groups
    }

    /// The group of flags in which help shows it, with the group's place.
    fn help_heading(&self) -> (u8, &'static str) {
        match self.side {
            Side::Load if self.name == "link" => (3, "Links"),
            Side::Clients if self.name == "via" => (2, "Relay"),
            Side::Load | Side::Clients => (0, "Load"),
            Side::Wire => (1, "Wire"),
            Side::Relay | Side::Program => (2, "Relay"),
        }
    }
}

/// Rows in the order of [`Factor::ALL`].
static ROWS: [Row; Factor::ALL.len()] = [
    Row {
        name: "format",
        side: Side::Wire,
        value_name: "FORMAT",
        help: "Wire format, as client-sim formats lists them",
        details: "JSON without compression is what every other cell is compared with.",
        names: || Format::all().map(Format::name).collect(),
        families: || {
            let of = |family: &str| {
                let names = Format::all().map(Format::name);
                names.filter(|name| name.starts_with(family)).collect()
            };
            let core = Format::core().map(Format::name).collect();
            vec![("core", core), ("cbor", of("cbor-")), ("proto", of("proto-"))]
        },
        read: |cell, text| parsed(text).map(|format| cell.format = format),
        write: |cell| cell.format.name().to_owned(),
        recorded: |cell| Some(&cell.format),
        ..PLAIN
    },
    Row {
        name: "compression",
        side: Side::Wire,
        value_name: "NAME",
        help: "Compression, such as deflate or zstd",
        details: "One of none, deflate, deflate-no-takeover, deflate-shared, zstd, zstd-stream, zstd-shared and zstd-dict, with \
                  optional parameters, as in deflate:level=4:window_bits=12:upload_takeover=no:min_bytes=100.",
        names: || Compression::NAMES.to_vec(),
        families: || vec![("best", Compression::BEST_KNOWN.to_vec())],
        read: |cell, text| parsed(text).map(|compression| cell.compression = compression),
        write: |cell| cell.compression.label(),
        recorded: |cell| Some(&cell.compression),
        ..PLAIN
    },
    Row {
        name: "batching",
        side: Side::Wire,
        value_name: "BATCHES",
        help: "Several live events in one message: off or on",
        details: "The relay's limits may follow, as in on:ms=2:n=16:bytes=8192.",
        is_rare: true,
        read: |cell, text| Batching::read(text).map(|batching| cell.batching = batching),
        write: |cell| cell.batching.map_or_else(|| NO_BATCHES.to_owned(), |batching| batching.to_string()),
        recorded: |cell| Some(&cell.batching),
        ..PLAIN
    },
    Row {
        name: "implementation",
        side: Side::Wire,
        value_name: "WHOSE",
        help: "Whose codec: library (ecosystem) or tuned (ours)",
        details: "Both ends use it. Tuned is hand-written code for the same bytes.",
        names: || Implementation::ALL.map(Implementation::name).to_vec(),
        read: |cell, text| parsed(text).map(|implementation| cell.implementation = implementation),
        write: |cell| cell.implementation.name().to_owned(),
        recorded: |cell| Some(&cell.implementation),
        ..PLAIN
    },
    Row {
        name: "verify",
        side: Side::Relay,
        value_name: "LEVEL",
        help: "Check of published events: full, id or none",
        details: "Full is id and signature (NIP-01).",
        conflicts: &["url"],
        read: |cell, text| of_relay(cell, text, |relay, text| parsed(text).map(|level| relay.verify = level)),
        write: |cell| from_relay(cell, |relay| relay.verify.name().to_owned()),
        recorded: |cell| Some(&cell.verify),
        ..PLAIN
    },
    Row {
        name: "reencode",
        side: Side::Relay,
        value_name: "WHEN",
        help: "Encoding for readers of the publisher's format: always or never-if-canonical",
        details: "With never-if-canonical the relay passes on bytes that the codec would write, which takes a format with one \
                  encoding, such as cbor-packed.",
        is_rare: true,
        conflicts: &["url"],
        names: || vec!["always", "never-if-canonical"],
        read: |cell, text| {
            of_relay(cell, text, |relay, text| {
                let when = Reencode::from_str(text, false);
                let unknown =
                    |_| UnknownName::new("reencode", text, (Factor::Reencode.row().names)()).to_string();
                when.map(|when| relay.reencode = when).map_err(unknown)
            })
        },
        write: |cell| from_relay(cell, |relay| word(relay.reencode)),
        recorded: |cell| Some(&cell.reencode),
        ..PLAIN
    },
    Row {
        name: "relay-threads",
        side: Side::Relay,
        value_name: "NUMBER",
        help: "Threads of the relay, 1 to 256",
        details: "They run on the cores that the relay is pinned to.",
        is_rare: true,
        conflicts: &["url"],
        read: |cell, text| of_relay(cell, text, read_threads),
        write: |cell| from_relay(cell, |relay| relay.threads.to_string()),
        recorded: |cell| Some(&cell.relay_threads),
        in_id: |value| format!("{value}-threads"),
        ..PLAIN
    },
    Row {
        name: "relay",
        side: Side::Program,
        value_name: "NAME",
        help: "The relay's name among those that one run starts",
        is_rare: true,
        read: read_relay_name,
        write: |cell| cell.relay_name.clone(),
        recorded: |cell| Some(&cell.relay),
        ..PLAIN
    },
    Row {
        name: "via",
        side: Side::Clients,
        value_name: "WHAT",
        help: "What stands before the relay: none or gateway",
        details: "The gateway speaks the cell's format and compression to clients, and JSON without compression to the relay. It \
                  runs on the relay's cores; its CPU time and memory count as the relay's, and records have them apart. It \
                  makes no batches.",
        is_rare: true,
        names: || VIA.to_vec(),
        read: |cell, text| {
            let at = VIA.iter().position(|way| *way == text).ok_or("expected none or gateway")?;
            cell.via_gateway = at == 1;
            Ok(())
        },
        write: |cell| VIA[usize::from(cell.via_gateway)].to_owned(),
        recorded: |cell| Some(&cell.via),
        in_id: |value| if value == NO_GATEWAY { "direct".to_owned() } else { value.to_owned() },
        ..PLAIN
    },
    Row {
        name: "client-verify",
        side: Side::Clients,
        value_name: "LEVEL",
        help: "Clients' check of received events: none, id or full",
        details: "Id is the hash of the canonical JSON (NIP-01), full the signature, too. An event that fails counts as altered.",
        is_rare: true,
        read: |cell, text| parsed(text).map(|level| cell.client_verify = level),
        write: |cell| cell.client_verify.name().to_owned(),
        recorded: |cell| Some(&cell.client_verify),
        in_id: |value| format!("clients-{value}"),
        ..PLAIN
    },
    Row {
        name: "client-keeps",
        side: Side::Clients,
        value_name: "FORM",
        help: "Form in which clients keep ids and keys of tags: text or bytes",
        details: "With bytes, tag values of 64 lowercase hex digits are decoded into 32 bytes and compared so. Tuned code then \
                  makes no text of them; a library's text is made first. The relay's codec is the same for both.",
        is_rare: true,
        names: || KEEPS.to_vec(),
        read: |cell, text| {
            let at = KEEPS.iter().position(|form| *form == text);
            let at = at.ok_or_else(|| UnknownName::new("client-keeps", text, KEEPS).to_string())?;
            cell.client_keeps_bytes = at == 1;
            Ok(())
        },
        write: |cell| KEEPS[usize::from(cell.client_keeps_bytes)].to_owned(),
        recorded: |cell| Some(&cell.client_keeps),
        in_id: |value| format!("keeps-{value}"),
        ..PLAIN
    },
    Row {
        name: "scenario",
        side: Side::Load,
        value_name: "NAME|FILE",
        help: "A name (client-sim scenarios) or a .toml file",
        details: "The flag itself may be left out. A recording of gateway --record, a .jsonl.zst file, is a scenario, too \
                  (docs/gateway.md).",
        read: |cell, text| {
            text.clone_into(&mut cell.scenario);
            Ok(())
        },
        write: |cell| cell.scenario.clone(),
        recorded: |cell| Some(&cell.scenario),
        // It may be a path, and a cell's name becomes a file's.
        in_id: |value| stem(value).to_owned(),
        ..PLAIN
    },
    Row {
        name: "rate",
        side: Side::Load,
        value_name: "PER_SECOND",
        help: "Events published per second, instead of the scenario's rate",
        details: "Each population that has a rate gets this one.",
        read: read_rate,
        write: |cell| cell.rate_per_s.map_or_else(String::new, |rate| rate.to_string()),
        in_id: |value| format!("{value}-per-s"),
        ..PLAIN
    },
    Row {
        name: "load",
        side: Side::Load,
        value_name: "NUMBER",
        help: "Multiple of the scenario's clients and of their rates",
        details: "One client keeps its pace (scenarios/README.md). A recording keeps its clients and is played so many times as \
                  fast.",
        read: read_load,
        write: |cell| cell.load.to_string(),
        recorded: |cell| Some(&cell.load),
        in_id: |value| format!("load-{value}"),
        ..PLAIN
    },
    Row {
        name: "saturate",
        side: Side::Load,
        value_name: "WHOM",
        help: "Bring relay or clients to their limit",
        details: "Every arrival becomes a closed loop: publishers keep a window unanswered, sessions follow each other, and \
                  time ends the loops. With relay, the value of the flag alone, readers decode every 64th delivery and count \
                  the others. With clients they decode all. --rate is then the most events published per second.",
        conflicts: &["share", "serve", "max_rate", "link"],
        names: || Saturate::NAMES.to_vec(),
        read: |cell, text| Saturate::read(text).map(|saturate| cell.saturate = saturate),
        write: |cell| cell.saturate.map_or(NOT_SATURATED, Saturate::name).to_owned(),
        recorded: |cell| Some(&cell.saturate),
        in_id: |value| if value == NOT_SATURATED { "paced".to_owned() } else { format!("full-{value}") },
        ..PLAIN
    },
    Row {
        name: "link",
        side: Side::Load,
        value_name: "LINK",
        help: "Emulated access link of each user, such as slow-4g",
        details: "A profile (client-sim links lists them), parameters as in down=1.6mbit:up=750kbit:rtt=150ms:loss=1%, both, or \
                  none for loopback. A population of the scenario may have a link of its own. Needs network namespaces; \
                  CPU times of such runs are no evidence.",
        conflicts: &["url", "relay_at", "serve"],
        read: |cell, text| {
            let parsed = || text.parse::<link::Link>().map_err(|error| error.why().to_owned());
            cell.link = if text == NO_LINK { None } else { Some(parsed()?) };
            Ok(())
        },
        write: |cell| cell.link.as_ref().map_or_else(|| NO_LINK.to_owned(), link::Link::spelled_out),
        recorded: |cell| Some(&cell.link),
        ..PLAIN
    },
];

/// Words for [`Cell::via_gateway`], false first.
const VIA: [&str; 2] = [NO_GATEWAY, "gateway"];

/// Words for [`Cell::client_keeps_bytes`], false first.
const KEEPS: [&str; 2] = ["text", "bytes"];

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// The word of relay-sim's command line.
fn word(when: Reencode) -> String {
    when.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Reads a setting of a relay of our own, or [`UNKNOWN`] for another's.
fn of_relay(
    cell: &mut Cell,
    text: &str,
    read: impl FnOnce(&mut RelaySide, &str) -> Result<(), String>,
) -> Result<(), String> {
    if text == UNKNOWN {
        cell.relay = None;
        return Ok(());
    }
    let mut relay = cell.own_relay();
    read(&mut relay, text)?;
    cell.relay = Some(relay);
    Ok(())
}

fn from_relay(cell: &Cell, write: impl FnOnce(RelaySide) -> String) -> String {
    cell.relay.map_or_else(|| UNKNOWN.to_owned(), write)
}

fn read_threads(relay: &mut RelaySide, text: &str) -> Result<(), String> {
    let threads = text.parse().ok().filter(|threads| (1..=256).contains(threads));
    relay.threads = threads.ok_or("expected a whole number from 1 to 256")?;
    Ok(())
}

/// A name that may stand in names of cells and of files; the text of none is empty.
fn read_relay_name(cell: &mut Cell, text: &str) -> Result<(), String> {
    const MOST: usize = 32;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.len() > MOST || !text.chars().all(is_plain) || text.starts_with('.') {
        return Err(format!("expected at most {MOST} letters, digits and any of . _ -"));
    }
    text.clone_into(&mut cell.relay_name);
    Ok(())
}

/// The text of no rate is empty.
fn read_rate(cell: &mut Cell, text: &str) -> Result<(), String> {
    if text.is_empty() {
        cell.rate_per_s = None;
        return Ok(());
    }
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    cell.rate_per_s = Some(rate.ok_or("expected a number of events per second above 0")?);
    Ok(())
}

/// The most that a load may be: a plan's memory bounds it earlier, and no product overflows.
pub const MOST_LOAD: f64 = 1e4;

fn read_load(cell: &mut Cell, text: &str) -> Result<(), String> {
    let load = text.parse().ok().filter(|load: &f64| *load > 0.0 && *load <= MOST_LOAD);
    cell.load = load.ok_or_else(|| format!("expected a number above 0 and at most {MOST_LOAD}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text for each factor that is not its default.
    fn others() -> Vec<(&'static str, &'static str)> {
        vec![
            ("format", "cbor-packed"),
            ("compression", "deflate:level=4"),
            ("batching", "on:ms=2:bytes=9"),
            ("implementation", "tuned"),
            ("verify", "id"),
            ("reencode", "never-if-canonical"),
            ("relay-threads", "2"),
            ("relay", "strfry-1.0"),
            ("via", "gateway"),
            ("client-verify", "full"),
            ("client-keeps", "bytes"),
            ("scenario", "some/mine.toml"),
            ("rate", "0.5"),
            ("load", "2.5"),
            ("saturate", "relay"),
            ("link", "slow-4g:loss=2%"),
        ]
    }

    #[test]
    fn a_cell_becomes_text_and_back_whatever_its_factors_are() {
        let standing = Cell::default();
        assert_eq!(serde_json::to_string(&standing).unwrap().parse::<Cell>(), Ok(standing.clone()));
        let names: Vec<&str> = others().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, Factor::ALL.map(|factor| factor.row().name), "a value of every factor");
        for (name, text) in others() {
            let cell = Cell::from_words([(name, text)]).unwrap();
            assert_ne!(cell, standing, "{name}");
            assert_eq!(serde_json::to_string(&cell).unwrap().parse::<Cell>(), Ok(cell), "{name}");
        }
        let foreign = Cell { relay: None, ..Cell::default() };
        assert_eq!(serde_json::to_string(&foreign).unwrap().parse::<Cell>(), Ok(foreign));
    }

    #[test]
    fn what_is_no_cell_is_refused_by_the_name_of_its_factor() {
        for (text, says) in [
            (r#"{"colour":"red"}"#, "unknown factor \"colour\"; known: format"),
            (r#"{"format":"xml"}"#, "format \"xml\": "),
            (r#"{"batching":"on:ms"}"#, "\"ms\" is not a limit"),
            (r#"{"rate":"-1"}"#, "above 0"),
            (r#"{"rate":1}"#, "expected a string"),
            (r#"{"load":"0"}"#, "load \"0\": expected a number above 0 and at most 10000"),
            (r#"{"load":"NaN"}"#, "above 0"),
            (r#"{"load":"10001"}"#, "at most 10000"),
            (r#"{"saturate":"both"}"#, "saturate \"both\": expected none, relay, clients"),
            (r#"{"via":"nginx"}"#, "via \"nginx\": expected none or gateway"),
            (
                r#"{"client-keeps":"hex"}"#,
                "client-keeps \"hex\": unknown client-keeps \"hex\"; known: text bytes",
            ),
            (r#"{"relay":"a b"}"#, "relay \"a b\": expected at most 32 letters"),
            (r#"{"relay":"../a"}"#, "expected at most 32 letters"),
            (r#"{"link":"5g"}"#, "link \"5g\""),
            ("[]", "expected a map"),
        ] {
            let error = text.parse::<Cell>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
