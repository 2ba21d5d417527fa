//! The page that npm builds: its script, the rows of its tables, and the cells that they make.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use anyhow::{Context, Result, anyhow, ensure};
use cell::{Batching, Cell};
use codecs::Format;
use program::UsageError;
use serde::Deserialize;

use super::events::MIXED;
use crate::{args::BrowserFlags, matrix::CellSpec};
use report::result::{CONTROL, Role};

/// The page's folder in the source tree and in packages, below a folder that the program is in.
const FOLDERS: [&str; 2] = ["web/browser/dist", "share/nostr-load-test/browser"];
const SCRIPT: &str = "page.js";
const ROWS: &str = "rows.json";

/// The first row: `JSON.parse` of text, which every ratio refers to.
pub(crate) const BASE: &str = "json";

/// The page's script and everything in it.
#[derive(Debug, Deserialize)]
pub(crate) struct Rows {
    #[serde(skip)]
    pub(crate) script: Vec<u8>,
    pub(crate) libraries: BTreeMap<String, String>,
    decoders: Vec<Row>,
    tasks: Vec<Row>,
}

/// A decoder, or what an app does with an event besides decoding it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) format: String,
    compression: String,
    pub(crate) script_gzip_bytes: u64,
}

/// A part of a page's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes or text to the object that an app uses.
    Decode,
    /// A REQ for stored events to its EOSE, over a WebSocket.
    EndToEnd,
    /// Decoding beside verification and rendering.
    InProportion,
}

impl Part {
    /// Every part, in the order of reports.
    pub(crate) const ALL: [Part; 3] = [Part::Decode, Part::EndToEnd, Part::InProportion];

    /// Its name in flags and in names of loads.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Decode => "decode",
            Part::EndToEnd => "end-to-end",
            Part::InProportion => "in-proportion",
        }
    }

    /// Whether its cells have a relay, a compression of their connection, and batches.
    pub(crate) fn is_over_sockets(self) -> bool {
        self == Part::EndToEnd
    }
}

/// What a page does for a cell.
#[derive(Debug, Clone)]
pub(crate) struct PageCell {
    pub(crate) part: Part,
    /// The set of events.
    pub(crate) set: &'static str,
    pub(crate) row: Row,
    pub(crate) spec: CellSpec,
}

impl Rows {
    /// Reads the page in the named folder, or in the first of [`FOLDERS`] that has one.
    ///
    /// # Errors
    /// When there is none, with the command that builds it, or when it is damaged.
    pub(crate) fn read(named: Option<&Path>) -> Result<Rows> {
        let program = env::current_exe().unwrap_or_default();
        let known = || program.ancestors().flat_map(|folder| FOLDERS.map(|page| folder.join(page)));
        let folder =
            named.map(Path::to_owned).or_else(|| known().find(|folder| folder.join(SCRIPT).is_file()));
        let read = || {
            let folder = folder.context("this program has no page")?;
            let file = |name| folder.join(name).display().to_string();
            let text = fs::read(folder.join(ROWS)).with_context(|| file(ROWS))?;
            let mut rows: Rows = serde_json::from_slice(&text).with_context(|| file(ROWS))?;
            let is_first = rows.decoders.first().is_some_and(|row| row.name == BASE);
            ensure!(is_first, "{}: its first row is not {BASE}", file(ROWS));
            rows.script = fs::read(folder.join(SCRIPT)).with_context(|| file(SCRIPT))?;
            Ok(rows)
        };
        let remedy = "run `npm install --ignore-scripts && npm run build` in web/browser, or name the folder of a built page \
                      with --page FOLDER";
        read().map_err(|why: anyhow::Error| UsageError(anyhow!("{why:#}: {remedy}")).into())
    }

    /// Rows for tests, without a script.
    #[cfg(test)]
    pub(crate) fn few() -> Rows {
        Rows::read(Some(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page")))).unwrap()
    }

    /// The formats behind names and groups, in the order of every table.
    ///
    /// # Errors
    /// Names a format without a decoder, and those that have one.
    pub(crate) fn formats(&self, wanted: &[String]) -> Result<Vec<String>> {
        let mut known: Vec<&str> = self.decoders.iter().map(|row| row.format.as_str()).collect();
        known.dedup();
        let is_known =
            |name: &&String| ["all", "core"].contains(&name.as_str()) || known.contains(&name.as_str());
        if let Some(unknown) = wanted.iter().find(|name| !is_known(name)) {
            let known = known.join(" ");
            return Err(UsageError(anyhow!("the page has no decoder of {unknown:?}; known: {known}")).into());
        }
        let core: Vec<&str> = Format::core().map(Format::name).collect();
        let is_wanted = |format: &&str| {
            wanted
                .iter()
                .any(|name| name == format || name == "all" || name == "core" && core.contains(format))
        };
        Ok(known.into_iter().filter(is_wanted).map(str::to_owned).collect())
    }

    /// JSON's first decoder and those of some formats, which are compared with `JSON.parse` before
    /// anything is timed.
    pub(crate) fn decoders(&self, formats: &[String]) -> impl Iterator<Item = &Row> {
        let is_asked = |row: &&Row| row.name == BASE || formats.contains(&row.format);
        self.decoders.iter().filter(is_asked)
    }

    /// The cells, each load (a part and its events) behind its anchor and its control.
    ///
    /// # Errors
    /// When the page has a format or a compression that this program does not know.
    pub(crate) fn cells(&self, flags: &BrowserFlags, formats: &[String]) -> Result<Vec<PageCell>> {
        let base = &self.decoders[0];
        let (compressions, batchings) = (flags.compressions(), flags.batchings());
        let mut cells = Vec::new();
        for part in flags.parts() {
            let measured: Vec<Measured<'_>> = match part {
                Part::Decode => self.decoders(formats).skip(1).map(of_row).collect(),
                Part::InProportion => self.tasks.iter().map(of_row).collect(),
                // Of each format its first decoder.
                Part::EndToEnd => {
                    let mut rows: Vec<&Row> = self.decoders(formats).collect();
                    rows.dedup_by(|row, before| row.format == before.format);
                    let under = |row| compressions.iter().map(move |compression| (row, *compression));
                    let each = |(row, compression)| {
                        batchings.iter().map(move |batched| (row, compression, *batched))
                    };
                    let others = |one: &Measured<'_>| *one != (base, "none", false);
                    rows.into_iter().flat_map(under).flat_map(each).filter(others).collect()
                }
            };
            for set in if part == Part::Decode { flags.sets() } else { vec![MIXED] } {
                cells.push(cell(flags, (part, set), Role::Anchor, of_row(base))?);
                cells.push(cell(flags, (part, set), Role::Control, of_row(base))?);
                for one in &measured {
                    cells.push(cell(flags, (part, set), Role::Cell, *one)?);
                }
            }
        }
        let loads: BTreeSet<&str> = cells.iter().map(|cell: &PageCell| &*cell.spec.cell.scenario).collect();
        if loads.len() > 1 {
            cells
                .iter_mut()
                .for_each(|PageCell { spec, .. }| spec.id = format!("{}+{}", spec.id, spec.cell.scenario));
        }
        Ok(cells)
    }
}

/// A row, the compression of its connection, and whether there are batches.
type Measured<'a> = (&'a Row, &'a str, bool);

/// A row with the compression that its decoder undoes.
fn of_row(row: &Row) -> Measured<'_> {
    (row, &row.compression, false)
}

/// A cell of a row under a compression, with batches or without.
fn cell(
    flags: &BrowserFlags,
    (part, set): (Part, &'static str),
    role: Role,
    (row, compression, batched): Measured<'_>,
) -> Result<PageCell> {
    let name = if role == Role::Control { CONTROL } else { &row.name };
    let id = match role {
        Role::Cell if part.is_over_sockets() => {
            format!("{name}+{compression}{}", if batched { "+batched" } else { "" })
        }
        _ => name.to_owned(),
    };
    let scenario = match part {
        Part::Decode => format!("{}-{set}", part.name()),
        _ => part.name().to_owned(),
    };
    let cell = Cell {
        scenario,
        link: flags.link.clone(),
        format: row.format.parse::<Format>()?,
        compression: compression.parse()?,
        batching: batched.then(Batching::default),
        ..Cell::default()
    };
    let spec = CellSpec { id, role, cell, utilisation: None, over_links: None, faults: Vec::new() };
    Ok(PageCell { part, set, row: row.clone(), spec })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn cells(args: &[&str]) -> Vec<CellSpec> {
        let line = [&["compare", "browser", "--batching", "off,on"][..], args].concat();
        let Command::Browser(flags) = Cli::parse_from(line).command else { panic!("another command") };
        let formats = Rows::few().formats(&flags.formats).unwrap();
        Rows::few().cells(&flags, &formats).unwrap().into_iter().map(|cell| cell.spec).collect()
    }

    #[test]
    fn every_load_begins_with_its_anchor_and_its_control() {
        let all = cells(&["--part", "in-proportion,decode,end-to-end", "--format", "json,dannypack"]);
        let loads: Vec<&[CellSpec]> = all.chunk_by(|one, other| one.load() == other.load()).collect();
        assert_eq!(loads.len(), 4);
        for load in loads {
            assert_eq!((load[0].role, load[1].role), (Role::Anchor, Role::Control), "{}", load[0].id);
            assert!(load[2..].iter().all(|cell| cell.role == Role::Cell) && load.len() >= 3);
        }
        let ids: std::collections::BTreeSet<&str> = all.iter().map(|cell| cell.id.as_str()).collect();
        assert_eq!(ids.len(), all.len(), "two cells bear one name");
        assert!(
            ids.contains("dannypack:tuned+decode-lists") && ids.contains("json+in-proportion"),
            "{ids:?}"
        );
    }

    #[test]
    fn over_sockets_a_format_has_one_decoder_under_every_compression_with_and_without_batches() {
        let all = cells(&["--part", "end-to-end", "--format", "cbor-packed"]);
        let ids: Vec<&str> = all.iter().map(|cell| cell.id.as_str()).collect();
        let expected = [
            "json",
            "json-control",
            "json+none+batched",
            "json+deflate",
            "json+deflate+batched",
            "cbor-packed:cbor-x+none",
            "cbor-packed:cbor-x+none+batched",
            "cbor-packed:cbor-x+deflate",
            "cbor-packed:cbor-x+deflate+batched",
        ];
        assert_eq!(ids, expected);
    }
}
