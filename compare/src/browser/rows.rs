//! The page that npm builds: its script, the rows of its tables, and the cells that they make.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::error::BrowserError;
use report::result::{BrowserCell, CONTROL, Part, Role};

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

#[derive(Debug, Clone, Deserialize)]
struct Row {
    name: String,
    #[serde(default = "json")]
    format: String,
    #[serde(default = "task")]
    implementation: String,
    library: Option<String>,
    #[serde(default = "native")]
    hex: String,
    #[serde(default = "none")]
    compression: String,
    script_bytes: u64,
    script_gzip_bytes: u64,
}

fn json() -> String {
    BASE.to_owned()
}

fn task() -> String {
    "task".to_owned()
}

fn native() -> String {
    "native".to_owned()
}

fn none() -> String {
    "none".to_owned()
}

/// The run as asked for.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    pub(crate) parts: &'a [Part],
    pub(crate) formats: &'a [String],
    pub(crate) sets: &'a [String],
    pub(crate) compressions: &'a [String],
    pub(crate) batchings: &'a [bool],
}

impl Rows {
    /// Reads the page in the named folder, or in the first of [`FOLDERS`] that has one.
    ///
    /// # Errors
    /// When there is none, with the command that builds it, or when it is damaged.
    pub(crate) fn read(named: Option<&Path>) -> Result<Rows, BrowserError> {
        let program = env::current_exe().unwrap_or_default();
        let known = || program.ancestors().flat_map(|folder| FOLDERS.map(|page| folder.join(page)));
        let built = |folder: &PathBuf| folder.join(SCRIPT).is_file();
        let folder = named.map(Path::to_owned).or_else(|| known().find(built));
        let folder = folder.ok_or_else(|| BrowserError::NotBuilt("this program has no page".to_owned()))?;
        let file = |name: &str| folder.join(name).display().to_string();
        let refused = |name, why: String| BrowserError::NotBuilt(format!("{}: {why}", file(name)));
        let read = |name| fs::read(folder.join(name)).map_err(|error| refused(name, error.to_string()));
        let mut rows: Rows =
            serde_json::from_slice(&read(ROWS)?).map_err(|error| refused(ROWS, error.to_string()))?;
        if rows.decoders.first().is_none_or(|row| row.name != BASE) {
            return Err(refused(ROWS, format!("its first row is not {BASE}")));
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
    pub(crate) fn cells(&self, asked: &Selection<'_>) -> Result<Vec<BrowserCell>, String> {
        let known = self.formats();
        if let Some(unknown) = asked.formats.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("the page has no decoder of {unknown:?}; known: {}", known.join(" ")));
        }
        let mut cells = Vec::new();
        for part in asked.parts {
            match part {
                Part::Decode => {
                    for set in asked.sets {
                        self.add(*part, set, self.for_formats(asked.formats).skip(1), &mut cells);
                    }
                }
                Part::InProportion => self.add(*part, "mixed", self.tasks.iter(), &mut cells),
                Part::EndToEnd | Part::Live => self.over_sockets(*part, asked, &mut cells),
            }
        }
        Ok(cells)
    }

    /// The anchor, its control and these rows.
    fn add<'a>(&self, part: Part, set: &str, rows: impl Iterator<Item = &'a Row>, to: &mut Vec<BrowserCell>) {
        let base = &self.decoders[0];
        to.push(cell(part, set, base, Role::Anchor));
        to.push(cell(part, set, base, Role::Control));
        to.extend(rows.map(|row| cell(part, set, row, Role::Cell)));
    }

    /// Of each format its first decoder, under each compression, with batches and without.
    fn over_sockets(&self, part: Part, asked: &Selection<'_>, to: &mut Vec<BrowserCell>) {
        let set = "mixed";
        self.add(part, set, std::iter::empty(), to);
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
                    let plain = cell(part, set, row, Role::Cell);
                    let batches = if batched { "+batched" } else { "" };
                    let id = format!("{}+{compression}{batches}", plain.id);
                    to.push(BrowserCell { id, compression: compression.clone(), batched, ..plain });
                }
            }
        }
    }
}

fn cell(part: Part, set: &str, row: &Row, role: Role) -> BrowserCell {
    let name = if role == Role::Control { CONTROL } else { &row.name };
    let set_in_id = if part == Part::Decode { format!("{set}:") } else { String::new() };
    BrowserCell {
        id: format!("{}:{set_in_id}{name}", part.name()),
        part,
        events: set.to_owned(),
        role,
        row: row.name.clone(),
        format: row.format.clone(),
        implementation: row.implementation.clone(),
        library: row.library.clone(),
        hex: row.hex.clone(),
        compression: row.compression.clone(),
        batched: false,
        input_bytes: None,
        script_bytes: row.script_bytes,
        script_gzip_bytes: row.script_gzip_bytes,
        blocks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(parts: &[Part], formats: &[&str]) -> Vec<BrowserCell> {
        let formats: Vec<String> = formats.iter().map(|name| (*name).to_owned()).collect();
        let asked = Selection {
            parts,
            formats: &formats,
            sets: &["mixed".to_owned(), "lists".to_owned()],
            compressions: &["none".to_owned(), "deflate".to_owned()],
            batchings: &[false, true],
        };
        Rows::few().cells(&asked).unwrap()
    }

    #[test]
    fn every_load_begins_with_its_anchor_and_its_control() {
        let all = cells(&[Part::Decode, Part::EndToEnd, Part::InProportion], &["json", "dannypack"]);
        let loads: Vec<&[BrowserCell]> =
            all.chunk_by(|one, other| (one.part, &one.events) == (other.part, &other.events)).collect();
        assert_eq!(loads.len(), 4);
        for load in loads {
            assert_eq!((load[0].role, load[1].role), (Role::Anchor, Role::Control), "{}", load[0].id);
            assert!(load[2..].iter().all(|cell| cell.role == Role::Cell) && load.len() >= 3);
        }
        let ids: std::collections::BTreeSet<&str> = all.iter().map(|cell| cell.id.as_str()).collect();
        assert_eq!(ids.len(), all.len(), "two cells bear one name");
    }

    #[test]
    fn over_sockets_a_format_has_one_decoder_under_every_compression_with_and_without_batches() {
        let all = cells(&[Part::EndToEnd], &["cbor-packed"]);
        let ids: Vec<&str> = all.iter().map(|cell| cell.id.trim_start_matches("end-to-end:")).collect();
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
        let asked = Selection { parts: &[], formats: &formats, sets: &[], compressions: &[], batchings: &[] };
        let error = Rows::few().cells(&asked).unwrap_err();
        assert!(error.contains("tlv") && error.contains("dannypack"), "{error}");
    }
}
