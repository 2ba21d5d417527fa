//! The page that npm builds: its script, the rows of its tables, and the cells that they make.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow};
use cell::{Batching, Cell, RelaySide};
use codecs::{Format, VerifyLevel};
use link::Link;
use program::UsageError;
use serde::Deserialize;

use super::events::MIXED;
use crate::matrix::CellSpec;
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
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    #[serde(default = "json")]
    pub(crate) format: String,
    #[serde(default)]
    implementation: String,
    #[serde(default = "none")]
    compression: String,
    pub(crate) script_gzip_bytes: u64,
}

fn json() -> String {
    BASE.to_owned()
}

fn none() -> String {
    "none".to_owned()
}

/// A part of a page's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes or text to the object that an app uses.
    Decode,
    /// A REQ for stored events to its EOSE, over a WebSocket.
    EndToEnd,
    /// Events as they are published, on a subscription after its EOSE.
    Live,
    /// Decoding beside verification and rendering.
    InProportion,
}

impl Part {
    /// Every part, in the order of reports.
    pub(crate) const ALL: [Part; 4] = [Part::Decode, Part::EndToEnd, Part::Live, Part::InProportion];

    /// Its name in flags and in names of loads.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Decode => "decode",
            Part::EndToEnd => "end-to-end",
            Part::Live => "live",
            Part::InProportion => "in-proportion",
        }
    }

    /// Whether its cells have a relay, a compression of their connection, and batches.
    pub(crate) fn is_over_sockets(self) -> bool {
        matches!(self, Part::EndToEnd | Part::Live)
    }
}

/// What a page does for a cell.
#[derive(Debug, Clone)]
pub(crate) struct PageCell {
    pub(crate) part: Part,
    /// The set of events.
    pub(crate) set: String,
    pub(crate) row: Row,
    pub(crate) spec: CellSpec,
}

/// The run as asked for.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    pub(crate) parts: &'a [Part],
    pub(crate) formats: &'a [String],
    pub(crate) sets: &'a [String],
    pub(crate) compressions: &'a [String],
    pub(crate) batchings: &'a [bool],
    pub(crate) link: Option<&'a Link>,
}

impl Rows {
    /// Reads the page in the named folder, or in the first of [`FOLDERS`] that has one.
    ///
    /// # Errors
    /// When there is none, with the command that builds it, or when it is damaged.
    pub(crate) fn read(named: Option<&Path>) -> Result<Rows> {
        let program = env::current_exe().unwrap_or_default();
        let known = || program.ancestors().flat_map(|folder| FOLDERS.map(|page| folder.join(page)));
        let built = |folder: &PathBuf| folder.join(SCRIPT).is_file();
        let folder = named.map(Path::to_owned).or_else(|| known().find(built));
        let not_built = |why: String| {
            UsageError(anyhow!(
                "{why}: run `npm install --ignore-scripts && npm run build` in web/browser, or name the folder of a built \
                 page with --page FOLDER"
            ))
        };
        let folder = folder.ok_or_else(|| not_built("this program has no page".to_owned()))?;
        let file = |name: &str| folder.join(name).display().to_string();
        let refused = |name, why: String| not_built(format!("{}: {why}", file(name)));
        let read = |name| fs::read(folder.join(name)).map_err(|error| refused(name, error.to_string()));
        let mut rows: Rows =
            serde_json::from_slice(&read(ROWS)?).map_err(|error| refused(ROWS, error.to_string()))?;
        if rows.decoders.first().is_none_or(|row| row.name != BASE) {
            return Err(refused(ROWS, format!("its first row is not {BASE}")).into());
        }
        rows.script = read(SCRIPT)?;
        Ok(rows)
    }

    /// Rows for tests, without a script.
    #[cfg(test)]
    pub(crate) fn few() -> Rows {
        Rows::read(Some(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page")))).unwrap()
    }

    /// Formats that have a decoder, in the order of every table.
    pub(crate) fn formats(&self) -> Vec<&str> {
        let mut formats: Vec<&str> = self.decoders.iter().map(|row| row.format.as_str()).collect();
        formats.dedup();
        formats
    }

    /// The names of the decoders of some formats, which are compared with `JSON.parse` before
    /// anything is timed.
    pub(crate) fn decoders(&self, formats: &[String]) -> Vec<&str> {
        self.for_formats(formats).map(|row| row.name.as_str()).collect()
    }

    fn for_formats(&self, formats: &[String]) -> impl Iterator<Item = &Row> {
        let is_asked = |row: &&Row| row.name == BASE || formats.contains(&row.format);
        self.decoders.iter().filter(is_asked)
    }

    /// The cells, each load (a part and its events) behind its anchor and its control.
    ///
    /// # Errors
    /// Names a format without a decoder, and those that have one.
    pub(crate) fn cells(&self, asked: &Selection<'_>) -> Result<Vec<PageCell>> {
        let known = self.formats();
        if let Some(unknown) = asked.formats.iter().find(|name| !known.contains(&name.as_str())) {
            let known = known.join(" ");
            return Err(UsageError(anyhow!("the page has no decoder of {unknown:?}; known: {known}")).into());
        }
        let mut cells = Vec::new();
        for part in asked.parts {
            match part {
                Part::Decode => {
                    for set in asked.sets {
                        self.add(asked, *part, set, self.for_formats(asked.formats).skip(1), &mut cells)?;
                    }
                }
                Part::InProportion => self.add(asked, *part, MIXED, self.tasks.iter(), &mut cells)?,
                Part::EndToEnd | Part::Live => self.over_sockets(*part, asked, &mut cells)?,
            }
        }
        let first = cells.first().map(|cell: &PageCell| cell.spec.cell.scenario.clone());
        if cells.iter().any(|cell| Some(&cell.spec.cell.scenario) != first.as_ref()) {
            cells
                .iter_mut()
                .for_each(|PageCell { spec, .. }| spec.id = format!("{}+{}", spec.id, spec.cell.scenario));
        }
        Ok(cells)
    }

    /// The anchor, its control and these rows.
    fn add<'a>(
        &self,
        asked: &Selection<'_>,
        part: Part,
        set: &str,
        rows: impl Iterator<Item = &'a Row>,
        to: &mut Vec<PageCell>,
    ) -> Result<()> {
        let base = &self.decoders[0];
        for (row, role) in
            [(base, Role::Anchor), (base, Role::Control)].into_iter().chain(rows.map(|row| (row, Role::Cell)))
        {
            to.push(cell(asked, part, set, row, role, (&row.compression, false))?);
        }
        Ok(())
    }

    /// Of each format its first decoder, under each compression, with batches and without.
    fn over_sockets(&self, part: Part, asked: &Selection<'_>, to: &mut Vec<PageCell>) -> Result<()> {
        self.add(asked, part, MIXED, std::iter::empty(), to)?;
        let mut formats: Vec<&str> = Vec::new();
        for row in self.for_formats(asked.formats) {
            if row.implementation == "head" || formats.contains(&row.format.as_str()) {
                continue;
            }
            formats.push(&row.format);
            for compression in asked.compressions {
                for &batched in asked.batchings {
                    if row.name == BASE && compression == "none" && !batched {
                        continue;
                    }
                    to.push(cell(asked, part, MIXED, row, Role::Cell, (compression, batched))?);
                }
            }
        }
        Ok(())
    }
}

/// A cell of a row under a compression, with batches or without.
fn cell(
    asked: &Selection<'_>,
    part: Part,
    set: &str,
    row: &Row,
    role: Role,
    (compression, batched): (&str, bool),
) -> Result<PageCell> {
    let over_sockets = if part.is_over_sockets() && role == Role::Cell {
        format!("+{compression}{}", if batched { "+batched" } else { "" })
    } else {
        String::new()
    };
    let name = if role == Role::Control { CONTROL } else { &row.name };
    let cell = Cell {
        scenario: if part == Part::Decode {
            format!("{}-{set}", part.name())
        } else {
            part.name().to_owned()
        },
        link: asked.link.cloned(),
        format: row.format.parse::<Format>()?,
        compression: compression.parse()?,
        batching: batched.then(Batching::default),
        // Ids of live events are no hashes.
        relay: Some(RelaySide { verify: VerifyLevel::None, ..RelaySide::default() }),
        ..Cell::default()
    };
    let id = format!("{name}{over_sockets}");
    let spec = CellSpec { id, role, cell, utilisation: None, over_links: None, faults: Vec::new() };
    Ok(PageCell { part, set: set.to_owned(), row: row.clone(), spec })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(parts: &'a [Part], formats: &'a [String], sets: &'a [String]) -> Selection<'a> {
        Selection { parts, formats, sets, compressions: &[], batchings: &[], link: None }
    }

    fn cells(parts: &[Part], formats: &[&str]) -> Vec<CellSpec> {
        let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (formats, sets, compressions) =
            (text(formats), text(&["mixed", "lists"]), text(&["none", "deflate"]));
        let asked = Selection {
            compressions: &compressions,
            batchings: &[false, true],
            ..asked(parts, &formats, &sets)
        };
        Rows::few().cells(&asked).unwrap().into_iter().map(|cell| cell.spec).collect()
    }

    #[test]
    fn every_load_begins_with_its_anchor_and_its_control() {
        let all = cells(&[Part::Decode, Part::EndToEnd, Part::InProportion], &["json", "dannypack"]);
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
        let all = cells(&[Part::EndToEnd], &["cbor-packed"]);
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

    #[test]
    fn a_format_without_a_decoder_is_refused_with_those_that_have_one() {
        let formats = vec!["tlv".to_owned()];
        let error = Rows::few().cells(&asked(&[], &formats, &[])).unwrap_err().to_string();
        assert!(error.contains("tlv") && error.contains("dannypack"), "{error}");
    }
}
