//! Which cells are measured: every combination of the values of each factor.

mod flags;
mod names;

use std::{collections::BTreeMap, time::Duration};

use cell::{Cell, Factor, Side, UNKNOWN};
use codecs::{Format, Implementation};

pub(crate) use flags::{FACTORS, Values};
use names::{choose, unknown};
use program::UsageError;
use report::{
    reference::{BASE_COMPRESSION, BASE_FORMAT, reference},
    result::{CONTROL, FLOOR, RelayCommand, Role},
};

/// The compression of which the relay's side alone is measured at the limit, unless asked for:
/// clients read it as deflate, and five minutes hold no more.
pub(crate) const ONCE_FOR_ALL: &str = "deflate-shared";

/// The values of every factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix(BTreeMap<Factor, Vec<String>>);

impl Default for Matrix {
    fn default() -> Matrix {
        let default = |factor: Factor| (factor, vec![(factor.row().write)(&Cell::default())]);
        Matrix(Factor::ALL.into_iter().map(default).collect())
            .with(Factor::Scenario, ["mixed-day"])
            .with(Factor::Format, ["core"])
            .with(Factor::Compression, ["none", "deflate", "zstd"])
    }
}

impl Matrix {
    /// Replaces the values of a factor.
    #[must_use]
    pub fn with<T: Into<String>>(mut self, factor: Factor, values: impl IntoIterator<Item = T>) -> Matrix {
        self.0.insert(factor, values.into_iter().map(Into::into).collect());
        self
    }

    /// The values of a factor as they are asked for: names, groups, parameters.
    pub fn values(&self, factor: Factor) -> &[String] {
        &self.0[&factor]
    }

    /// The matrix of the first table: relay and clients at their limit, in the formats that lead.
    pub(crate) fn at_the_limit() -> Matrix {
        Matrix::default()
            .with(Factor::Saturate, ["relay", "clients"])
            .with(Factor::Format, ["json", "cbor-packed", "proto-binary", "capnp", "dannypack", "notepack"])
            .with(Factor::Compression, ["none", "deflate", ONCE_FOR_ALL, "zstd-dict"])
    }

    /// The cells that every external relay can play: JSON without compression.
    pub(crate) fn of_relays() -> Matrix {
        Matrix::of_a_foreign_relay().with(Factor::Compression, [BASE_COMPRESSION])
    }

    /// The matrix with each of these relays, except the floor, which every load has already.
    pub(crate) fn with_relays(self, relays: &[RelayCommand]) -> Matrix {
        let relays = relays.iter().filter(|relay| !relay.is_floor());
        self.with(Factor::Relay, relays.map(|relay| relay.name.clone()))
    }

    /// The matrix of a foreign relay, whose own settings are unknown.
    pub(crate) fn of_a_foreign_relay() -> Matrix {
        Matrix::default().with(Factor::Format, [BASE_FORMAT]).with(Factor::Compression, ["none", "deflate"])
    }

    /// The matrix for an external relay.
    ///
    /// # Errors
    /// Names the flag that is for a relay of our own.
    pub(crate) fn of_anothers_relay<const LOADS: bool>(
        self,
        flags: &Values<LOADS>,
    ) -> anyhow::Result<Matrix> {
        if let Some(flag) = flags.of_the_relay() {
            anyhow::bail!("{flag} is for relays of our own: leave out {flag}, or --url and --relay");
        }
        Ok(Factor::on_side(Side::Relay).fold(self, |matrix, factor| matrix.with(factor, [UNKNOWN])))
    }
}

/// One cell of the matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSpec {
    /// The cell's name in files and on the terminal: `json+deflate`, with the factors that have
    /// several values behind.
    pub id: String,
    /// Its part in comparisons.
    pub role: Role,
    /// Its value of every factor.
    pub cell: Cell,
    /// The share of its own relay's cores that its load is to be chosen for.
    pub utilisation: Option<f64>,
    /// Demand of the plan on the users' links, where there are any.
    pub over_links: Option<OverLinks>,
    /// How the relay misbehaves, for tests of the instrument; no matrix has such cells.
    pub faults: Vec<String>,
}

impl CellSpec {
    /// The load; cells compare only under the same one.
    pub(crate) fn load(&self) -> Vec<String> {
        // Loads that are chosen for one share belong together.
        let write = |factor: Factor| match self.utilisation.filter(|_| factor == Factor::Load) {
            Some(share) => format!("{share} of its relay's cores"),
            None => (factor.row().write)(&self.cell),
        };
        Factor::on_side(Side::Load).map(write).collect()
    }
}

/// Demand of a cell's plan over links, in JSON without compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLinks {
    /// How long a block lasts.
    pub lasts: Duration,
    /// Packets a second that the host emulates on time, where that was measured.
    pub packets_per_s: Option<u32>,
}

/// Every combination of the factors that exists, in the order of the known names. For each load
/// JSON without compression and without batches leads as the anchor, because every ratio refers to
/// it; its control and the floor follow.
///
/// # Errors
/// When a value is unknown; the text lists those that are known.
pub fn cells(matrix: &Matrix) -> Result<Vec<CellSpec>, UsageError> {
    let chosen = Factor::ALL.into_iter().map(|factor| Ok((factor, choose(factor, matrix.values(factor))?)));
    let chosen: BTreeMap<Factor, Vec<String>> = chosen.collect::<Result<_, _>>()?;
    check_implementations(&chosen, matrix.values(Factor::Format))?;
    let of_load: Vec<Factor> = Factor::on_side(Side::Load).collect();
    let others = Factor::ALL.into_iter().filter(|factor| !of_load.contains(factor)).collect::<Vec<_>>();
    let mut wires = combinations(&others, &chosen);
    // The gateway makes no batches.
    let exists = |cell: &Cell| !(cell.via_gateway && cell.batching.is_some());
    wires.retain(|cell| cell.format.codec(cell.implementation).is_ok() && exists(cell));
    let anchor = anchor(&chosen);
    wires.retain(|wire| *wire != anchor);
    let mut cells = Vec::new();
    for load in combinations(&of_load, &chosen) {
        let under = |wire: &Cell| {
            of_load
                .iter()
                .fold(wire.clone(), |cell, factor| with(&cell, *factor, &(factor.row().write)(&load)))
        };
        // A floor is a cost in CPU, of which a run over links knows nothing.
        let floor = load.link.is_none().then_some(Role::Floor);
        let anchors = [Role::Anchor, Role::Control].into_iter().chain(floor);
        // Nothing stands before the floor, which is below every relay.
        let at_floor = Cell { via_gateway: false, ..anchor.clone() };
        let base = |role: Role| if role == Role::Floor { &at_floor } else { &anchor };
        cells.extend(anchors.map(|role| spec(&chosen, role, under(base(role)))));
        cells.extend(wires.iter().map(|wire| spec(&chosen, Role::Cell, under(wire))));
    }
    Ok(cells)
}

/// A cell for each combination of values of these factors, the last of them changing first.
fn combinations(factors: &[Factor], chosen: &BTreeMap<Factor, Vec<String>>) -> Vec<Cell> {
    factors.iter().fold(vec![Cell::default()], |cells, factor| {
        let each = |cell: Cell| chosen[factor].iter().map(move |text| with(&cell, *factor, text));
        cells.into_iter().flat_map(each).collect()
    })
}

fn with(cell: &Cell, factor: Factor, text: &str) -> Cell {
    let mut cell = cell.clone();
    (factor.row().read)(&mut cell, text).expect("each value was chosen from those that can be read");
    cell
}

/// JSON without compression and without batches, with the first value of every other factor of both
/// ends.
fn anchor(chosen: &BTreeMap<Factor, Vec<String>>) -> Cell {
    let of_base = [Factor::Format, Factor::Compression, Factor::Batching];
    let other = |factor: &Factor| factor.row().side != Side::Load && !of_base.contains(factor);
    let first = |cell: Cell, factor: Factor| match chosen[&factor].first() {
        Some(text) => with(&cell, factor, text),
        None => cell,
    };
    let anchor = Factor::ALL.into_iter().filter(other).fold(Cell::default(), first);
    match anchor.format.codec(anchor.implementation) {
        Ok(_) => anchor,
        Err(_) => Cell { implementation: Implementation::Library, ..anchor },
    }
}

/// A cell by the name of its format and compression, and of what else has several values.
fn spec(chosen: &BTreeMap<Factor, Vec<String>>, role: Role, cell: Cell) -> CellSpec {
    let write = |factor: Factor| (factor.row().write)(&cell);
    let mut id = match (role, cell.batching) {
        (Role::Control, _) => CONTROL.to_owned(),
        (Role::Floor, _) => FLOOR.to_owned(),
        (_, None) => format!("{}+{}", cell.format, write(Factor::Compression)),
        // As in the subprotocol token.
        (_, Some(batching)) => {
            let limits: String = batching.limits().map(|(name, limit)| format!(":{name}={limit}")).collect();
            format!("{}.batched{limits}+{}", cell.format, write(Factor::Compression))
        }
    };
    let named = [Factor::Format, Factor::Compression, Factor::Batching];
    // One floor serves all relays.
    let of_floor = [Factor::Relay, Factor::Via];
    let is_named =
        |factor: Factor| named.contains(&factor) || role == Role::Floor && of_floor.contains(&factor);
    for factor in Factor::ALL.into_iter().filter(|factor| !is_named(*factor)) {
        if chosen[&factor].len() > 1 {
            id = format!("{id}+{}", (factor.row().in_id)(&write(factor)));
        }
    }
    CellSpec { id, role, cell, utilisation: None, over_links: None, faults: Vec::new() }
}

/// Refuses a format that is asked for by name and has none of the implementations; formats of a
/// group may lack them.
fn check_implementations(chosen: &BTreeMap<Factor, Vec<String>>, named: &[String]) -> Result<(), UsageError> {
    let implementations: Vec<Implementation> =
        chosen[&Factor::Implementation].iter().filter_map(|name| name.parse().ok()).collect();
    for name in named.iter().map(|name| name.trim()) {
        let Ok(format) = name.parse::<Format>() else { continue };
        let has = |one: &Implementation| format.codec(*one).is_ok();
        if !implementations.iter().any(has) {
            let known: Vec<&str> =
                Implementation::ALL.into_iter().filter(has).map(Implementation::name).collect();
            let asked = chosen[&Factor::Implementation].join(",");
            return Err(unknown(&format!("implementation of {format}"), &asked, &known, ["all"]));
        }
    }
    Ok(())
}

/// The name of every cell with that of its reference.
pub(crate) fn references(cells: &[CellSpec]) -> Vec<(&str, Option<&str>)> {
    let mut pairs = Vec::new();
    for load in cells.chunk_by(|one, other| one.load() == other.load()) {
        let recorded: Vec<_> = load.iter().map(|spec| spec.cell.recorded()).collect();
        let compared: Vec<_> = load.iter().zip(&recorded).map(|(spec, cell)| (spec.role, cell)).collect();
        for (index, cell) in load.iter().enumerate() {
            let found = reference(&compared, index).map(|found| load[found].id.as_str());
            pairs.push((cell.id.as_str(), found));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use wire::Compression;

    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    fn ids_of(matrix: &Matrix) -> Result<String, UsageError> {
        let cells = cells(matrix)?;
        let loads = |role, any_link: bool| {
            let of_role = cells.iter().filter(move |spec| spec.role == role);
            of_role
                .filter(|spec| any_link || spec.cell.link.is_none())
                .map(CellSpec::load)
                .collect::<Vec<_>>()
        };
        assert_eq!(loads(Role::Floor, true), loads(Role::Anchor, false), "one for each load without links");
        let cells = cells.iter().filter(|cell| cell.role != Role::Floor);
        Ok(cells.map(|cell| cell.id.as_str()).collect::<Vec<_>>().join(" "))
    }

    /// A matrix with these values, each a list.
    fn with_values(values: &[(Factor, &str)]) -> Matrix {
        let each = |matrix: Matrix, (factor, text): &(Factor, &str)| matrix.with(*factor, list(text));
        values.iter().fold(Matrix::default(), each)
    }

    fn ids(formats: &str, compressions: &str) -> Result<String, UsageError> {
        ids_of(&with_values(&[(Factor::Format, formats), (Factor::Compression, compressions)]))
    }

    #[test]
    fn the_cells_are_the_anchor_its_control_and_what_was_asked_for_in_the_order_of_known_names() {
        use Factor::{
            Batching, ClientKeeps, ClientVerify, Compression, Format, Implementation, Link, Load, Rate,
            Reencode, Scenario, Verify, Via,
        };
        let none = (Compression, "none");
        let json_and_capnp = |factor, values| vec![(Format, "json,capnp"), none, (factor, values)];
        for (values, expected) in [
            (
                vec![(Format, "capnp,json"), (Compression, "deflate,none")],
                "json+none json-control json+deflate capnp+none capnp+deflate",
            ),
            (vec![(Format, "json,json"), (Compression, "none,none")], "json+none json-control"),
            (vec![(Format, "cbor-packed"), (Compression, "zstd")], "json+none json-control cbor-packed+zstd"),
            (
                vec![
                    (Format, "json,capnp"),
                    (Compression, "zstd,deflate:level=4,deflate:level=6,deflate,deflate:level=4,none"),
                ],
                "json+none json-control json+deflate:level=4 json+deflate json+zstd capnp+none capnp+deflate:level=4 \
                 capnp+deflate capnp+zstd",
            ),
            (
                vec![(Format, "json,capnp"), (Compression, "none,zstd"), (Batching, "off,on")],
                "json+none json-control json.batched+none json+zstd json.batched+zstd capnp+none capnp.batched+none \
                 capnp+zstd capnp.batched+zstd",
            ),
            (
                vec![(Format, "capnp"), none, (Batching, "on,on:ms=2:n=16,on")],
                "json+none json-control capnp.batched+none capnp.batched:ms=2:n=16+none",
            ),
            (
                vec![(Format, "capnp,msgpack"), none, (Implementation, "all"), (Verify, "full,none")],
                "json+none+library+full json-control+library+full capnp+none+library+full capnp+none+library+none \
                 capnp+none+tuned+full capnp+none+tuned+none msgpack+none+library+full msgpack+none+library+none",
            ),
            (
                vec![(Format, "json"), none, (Scenario, "a,some/b.toml"), (Rate, "10,20")],
                "json+none+a+10-per-s json-control+a+10-per-s json+none+a+20-per-s json-control+a+20-per-s \
                 json+none+b+10-per-s json-control+b+10-per-s json+none+b+20-per-s json-control+b+20-per-s",
            ),
            (
                json_and_capnp(Reencode, "all"),
                "json+none+always json-control+always json+none+never-if-canonical capnp+none+always \
                 capnp+none+never-if-canonical",
            ),
            (json_and_capnp(Reencode, "never-if-canonical"), "json+none json-control capnp+none"),
            (
                json_and_capnp(ClientVerify, "none,full"),
                "json+none+clients-none json-control+clients-none json+none+clients-full capnp+none+clients-none \
                 capnp+none+clients-full",
            ),
            (
                json_and_capnp(Via, "gateway,none"),
                "json+none+direct json-control+direct json+none+gateway capnp+none+direct capnp+none+gateway",
            ),
            (
                vec![(Format, "capnp"), none, (Via, "gateway"), (Batching, "off,on")],
                "json+none json-control capnp+none",
            ),
            // A link and a load have an anchor each.
            (
                json_and_capnp(Link, "wifi,none,4g:loss=1%,wifi"),
                "json+none+wifi json-control+wifi capnp+none+wifi json+none+none json-control+none capnp+none+none \
                 json+none+4g:loss=1% json-control+4g:loss=1% capnp+none+4g:loss=1%",
            ),
            (json_and_capnp(Link, "wifi"), "json+none json-control capnp+none"),
            (
                json_and_capnp(Load, "1,4.0,4,0.5"),
                "json+none+load-1 json-control+load-1 capnp+none+load-1 json+none+load-4 json-control+load-4 \
                 capnp+none+load-4 json+none+load-0.5 json-control+load-0.5 capnp+none+load-0.5",
            ),
        ] {
            assert_eq!(ids_of(&with_values(&values)).unwrap(), expected);
        }
        let keeps = [(Implementation, "tuned"), (ClientKeeps, "all"), none, (Format, "json,capnp")];
        let cells = cells(&with_values(&keeps)).unwrap();
        let reference = |of: &str| references(&cells).into_iter().find(|(id, _)| *id == of).unwrap().1;
        assert_eq!(reference("capnp+none+keeps-bytes"), Some("json+none+keeps-bytes"));
        assert_eq!(reference("json+none+keeps-bytes"), Some("json+none+keeps-text"));
    }

    #[test]
    fn behind_a_gateway_formats_are_compared_with_json_behind_it_and_json_with_json_without() {
        let matrix = with_values(&[
            (Factor::Format, "json,capnp"),
            (Factor::Compression, "none,zstd-dict"),
            (Factor::Via, "none,gateway"),
        ]);
        let cells = cells(&matrix).unwrap();
        let references = references(&cells);
        let reference = |of: &str| references.iter().find(|(id, _)| *id == of).unwrap().1;
        assert_eq!(reference("json+none+gateway"), Some("json+none+direct"));
        assert_eq!(reference("json+zstd-dict+gateway"), Some("json+none+gateway"));
        assert_eq!(reference("capnp+zstd-dict+gateway"), Some("json+zstd-dict+gateway"));
        assert_eq!(reference("capnp+none+direct"), Some("json+none+direct"));
        let floor = cells.iter().find(|cell| cell.role == Role::Floor).unwrap();
        assert!(floor.id == "floor" && !floor.cell.via_gateway, "{floor:?}");
    }

    #[test]
    fn families_of_names_stand_for_all_of_them() {
        let count = |formats: &str| ids(formats, "none").unwrap().split(' ').count();
        assert_eq!(count("all"), Format::all().len() + 1);
        assert_eq!(count("tlv,core"), Format::core().count() + 2);
        assert!(ids("tlv,core", "none").unwrap().ends_with(" tlv+none"));
        let all = ids("json", "all").unwrap();
        assert_eq!(all.split(' ').count(), Compression::NAMES.len() + 1);
        let with_level = all.replace("json+deflate ", "json+deflate json+deflate:level=4 ");
        assert_eq!(ids("json", "all,deflate:level=4").unwrap(), with_level);
        let best = ids("json", "best,deflate").unwrap();
        assert!(best.contains(" json+deflate:level=2:window_bits=12 json+deflate "), "{best}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let json = |factor, value| vec![(Factor::Format, "json"), (factor, value)];
        let tuned = |formats| vec![(Factor::Format, formats), (Factor::Implementation, "tuned")];
        for (values, says) in [
            (vec![(Factor::Format, "xml")], "unknown format \"xml\"; known: json cbor-schemaless "),
            (vec![(Factor::Format, "xml")], " tlv (or: core cbor proto all)"),
            (
                json(Factor::Compression, "none,brotli"),
                "unknown compression \"brotli\"; known: none deflate ",
            ),
            (json(Factor::Compression, "none,brotli"), " (or: best all)"),
            (json(Factor::Compression, "deflate:colour=4"), "compression \"deflate:colour=4\": "),
            (tuned("msgpack"), "unknown implementation of msgpack \"tuned\"; known: library (or: all)"),
            (
                json(Factor::Batching, "maybe"),
                "batching \"maybe\": known: off on (or: on:ms=2:n=16:bytes=8192)",
            ),
            (
                json(Factor::Batching, "on:ms"),
                "batching \"on:ms\": \"ms\" is not a limit; known: ms, n and bytes",
            ),
            (json(Factor::Reencode, "never"), "(did you mean never-if-canonical?); known: always"),
            (json(Factor::ClientKeeps, "hex"), "unknown client-keeps \"hex\"; known: text bytes (or: all)"),
            (json(Factor::Via, "nginx"), "unknown via \"nginx\"; known: none gateway (or: all)"),
            (json(Factor::Link, "5g"), "link \"5g\": "),
            (json(Factor::Verify, "much"), "verify \"much\": "),
            (json(Factor::Rate, "much"), "rate \"much\": "),
            (json(Factor::Load, "much"), "load \"much\": "),
        ] {
            let error = ids_of(&with_values(&values)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(ids_of(&with_values(&tuned("all"))).unwrap().ends_with("notepack+zstd"));
    }
}
