//! Which cells are measured: the factors and their values, checked against the names the client
//! knows.

mod names;
mod reference;

use std::{fs, path::Path, time::Duration};

use anyhow::Context;
use serde::Deserialize;

use measure::NO_LINK;

use crate::result::Role;
pub(crate) use names::{ALWAYS, NO_BATCHES};
use names::{
    BATCHES, REENCODINGS, choose, choose_batchings, choose_compressions, choose_implementations, choose_links,
};
pub use names::{Known, LinkDemand, UnknownName};
pub(crate) use reference::{Compared, reference};

/// The format every ratio refers to.
pub(crate) const BASE_FORMAT: &str = "json";

/// The compression every ratio refers to.
pub(crate) const BASE_COMPRESSION: &str = "none";

/// The second name of JSON without compression, a standing A/A test.
pub(crate) const CONTROL: &str = "json-control";

/// The name of the relay that does no Nostr work.
pub(crate) const FLOOR: &str = "floor";

/// The values of every factor. A matrix file has these keys; what it leaves out keeps its default.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Matrix {
    /// Scenario names or files.
    pub scenarios: Vec<String>,
    /// Wire formats, `core` (json to notepack) or `all`.
    pub formats: Vec<String>,
    /// Compressions, each with parameters if need be (`deflate:level=4`), `all` or `best`.
    pub compressions: Vec<String>,
    /// Batches of events: `off`, `on`, or `on` with the relay's limits (`on:ms=2:n=16:bytes=8192`).
    pub batchings: Vec<String>,
    /// `library`, `tuned`, or `all`; formats without one of them are measured with the others.
    pub implementations: Vec<String>,
    /// What the relay checks: `full`, `id`, `none`.
    pub verifications: Vec<String>,
    /// Whether the relay encodes an event anew in its publisher's format: `always`,
    /// `never-if-canonical`, or `all`.
    pub reencodings: Vec<String>,
    /// What clients check of each event that they receive: `none`, `id`, `full`.
    pub client_verifications: Vec<String>,
    /// Emulated access links, each a profile or its parameters (`slow-4g`,
    /// `down=1mbit:up=1mbit:rtt=50ms`), or `none` for loopback.
    pub links: Vec<String>,
    /// Events published per second; empty for the scenario's own rate.
    pub rates_per_s: Vec<u32>,
}

impl Default for Matrix {
    fn default() -> Matrix {
        let one = |name: &str| vec![name.to_owned()];
        Matrix {
            scenarios: one("mixed-day"),
            formats: one("core"),
            compressions: ["none", "deflate", "zstd"].map(str::to_owned).to_vec(),
            batchings: one(NO_BATCHES),
            implementations: one("library"),
            verifications: one("full"),
            reencodings: one(ALWAYS),
            client_verifications: one("none"),
            links: one(NO_LINK),
            rates_per_s: Vec::new(),
        }
    }
}

impl Matrix {
    /// The matrix of a foreign relay, whose verification is unknown.
    pub(crate) fn of_a_foreign_relay() -> Matrix {
        Matrix {
            formats: vec![BASE_FORMAT.to_owned()],
            compressions: ["none", "deflate"].map(str::to_owned).to_vec(),
            verifications: vec!["unknown".to_owned()],
            reencodings: vec!["unknown".to_owned()],
            ..Matrix::default()
        }
    }

    /// Reads a TOML file whose keys are the factors.
    ///
    /// # Errors
    /// When it cannot be read or has an unknown key; the text names the known ones.
    pub fn read(path: &Path) -> anyhow::Result<Matrix> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read matrix {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a matrix", path.display()))
    }
}

/// One cell of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellSpec {
    /// The cell's name in files and on the terminal: `json+deflate`, with the factors that have
    /// several values behind.
    pub id: String,
    /// What it is for.
    pub role: Role,
    /// The scenario's name or file.
    pub scenario: String,
    /// Events published per second, instead of the scenario's own.
    pub rate_per_s: Option<u32>,
    /// The wire format's name.
    pub format: String,
    /// The compression's name, with the parameters that differ from its standing ones.
    pub compression: String,
    /// Batches of events, see [`Matrix::batchings`].
    pub batching: String,
    /// Who wrote the codec.
    pub implementation: String,
    /// What the relay checks.
    pub verify: String,
    /// Whether the relay encodes an event anew in its publisher's format.
    pub reencode: String,
    /// What clients check of each event that they receive.
    pub client_verify: String,
    /// The access link of each user, or `none`.
    pub link: String,
    /// What the plan asks of the users' links, where there are any.
    pub over_links: Option<OverLinks>,
    /// How the relay misbehaves, for tests of the instrument; no matrix has such cells.
    pub faults: Vec<String>,
}

impl CellSpec {
    /// The load; cells compare only under the same one.
    pub(crate) fn load(&self) -> (&str, Option<u32>, &str) {
        (&self.scenario, self.rate_per_s, &self.link)
    }

    /// The limits of its batches that differ from the standing ones, as (`ms`, `2`); `None` without
    /// batches.
    pub(crate) fn batch_limits(&self) -> Option<Vec<(&str, &str)>> {
        let parameters = self.batching.strip_prefix(BATCHES)?;
        Some(parameters.split(':').filter_map(|parameter| parameter.split_once('=')).collect())
    }
}

/// Every combination of the factors that exists, in the order of the known names. For each load
/// JSON without compression and without batches leads as the anchor, because every ratio refers to
/// it; its control and the floor follow.
///
/// # Errors
/// [`UnknownName`]; the text lists those that are known.
pub fn cells(known: &Known, matrix: &Matrix) -> Result<Vec<CellSpec>, UnknownName> {
    let names: Vec<&'static str> = known.formats.iter().map(|(name, _)| *name).collect();
    let formats =
        choose("format", &names, &[("core", &known.core_formats), ("all", &names)], &matrix.formats)?;
    let compressions = choose_compressions(known, &matrix.compressions)?;
    let batchings = choose_batchings(&matrix.batchings)?;
    let implementations = choose_implementations(known, &matrix.implementations, &matrix.formats, &formats)?;
    let reencodings = match matrix.reencodings.as_slice() {
        [one] if one == "unknown" => vec!["unknown"],
        wanted => choose("reencoding", &REENCODINGS, &[("all", &REENCODINGS.to_vec())], wanted)?,
    };
    let rates: Vec<Option<u32>> = match matrix.rates_per_s.as_slice() {
        [] => vec![None],
        rates => rates.iter().copied().map(Some).collect(),
    };
    let links = choose_links(known, &matrix.links)?;
    let naming = Naming {
        implementation: implementations.len() > 1,
        verify: matrix.verifications.len() > 1,
        reencode: reencodings.len() > 1,
        client_verify: matrix.client_verifications.len() > 1,
        scenario: matrix.scenarios.len() > 1,
        rate: rates.len() > 1,
        link: links.len() > 1,
    };
    let anchor_implementation = implementations.iter().copied().find(|name| known.has(BASE_FORMAT, name));
    let anchor = Wire {
        format: BASE_FORMAT,
        compression: BASE_COMPRESSION,
        batching: NO_BATCHES,
        implementation: anchor_implementation
            .or(known.implementations().first().copied())
            .unwrap_or("library"),
        verify: matrix.verifications.first().map_or("full", String::as_str),
        reencode: reencodings.first().copied().unwrap_or(ALWAYS),
        client_verify: matrix.client_verifications.first().map_or("none", String::as_str),
    };
    let mut wires = Vec::new();
    for format in &formats {
        for compression in &compressions {
            for batching in &batchings {
                for implementation in implementations.iter().filter(|name| known.has(format, name)) {
                    for verify in &matrix.verifications {
                        for reencode in &reencodings {
                            let wire = |client_verify| Wire {
                                format,
                                compression,
                                batching,
                                implementation,
                                verify,
                                reencode,
                                client_verify,
                            };
                            let checks = matrix.client_verifications.iter().map(String::as_str);
                            wires.extend(checks.map(wire));
                        }
                    }
                }
            }
        }
    }
    wires.retain(|wire| *wire != anchor);
    let mut cells = Vec::new();
    for scenario in &matrix.scenarios {
        for (rate, link) in rates.iter().flat_map(|rate| links.iter().map(move |link| (rate, link))) {
            // A floor is a cost in CPU, of which a run over links knows nothing.
            let floor = (*link == NO_LINK).then_some(Role::Floor);
            let anchors = [Role::Anchor, Role::Control].into_iter().chain(floor).map(|role| (role, anchor));
            let others = wires.iter().map(|wire| (Role::Cell, *wire));
            let all = anchors.into_iter().chain(others);
            cells.extend(all.map(|(role, wire)| naming.cell(role, wire, (scenario, *rate, link))));
        }
    }
    Ok(cells)
}

/// What the plan of a cell over links asks for, in JSON without compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLinks {
    /// How long a block lasts.
    pub lasts: Duration,
    /// Packets a second that the host emulates on time, where that was measured.
    pub packets_per_s: Option<u32>,
}

/// The factors of a cell apart from its load.
#[derive(Clone, Copy, PartialEq)]
struct Wire<'m> {
    format: &'m str,
    compression: &'m str,
    batching: &'m str,
    implementation: &'m str,
    verify: &'m str,
    reencode: &'m str,
    client_verify: &'m str,
}

/// Which factors have several values and so stand in a cell's name.
struct Naming {
    implementation: bool,
    verify: bool,
    reencode: bool,
    client_verify: bool,
    scenario: bool,
    rate: bool,
    link: bool,
}

impl Naming {
    fn cell(
        &self,
        role: Role,
        wire: Wire<'_>,
        (scenario, rate_per_s, link): (&str, Option<u32>, &str),
    ) -> CellSpec {
        let Wire { format, compression, batching, implementation, verify, reencode, client_verify } = wire;
        let mut id = match (role, batching.strip_prefix(BATCHES)) {
            (Role::Control, _) => CONTROL.to_owned(),
            (Role::Floor, _) => FLOOR.to_owned(),
            (_, None) => format!("{format}+{compression}"),
            // As in the subprotocol token.
            (_, Some(parameters)) => format!("{format}.batched{parameters}+{compression}"),
        };
        let mut also = |several: bool, name: &str| {
            if several {
                // A scenario may be a path, and the id becomes a file's name.
                let file = name.rsplit('/').next().unwrap_or(name);
                id = format!("{id}+{}", file.strip_suffix(".toml").unwrap_or(file));
            }
        };
        also(self.implementation, implementation);
        also(self.verify, verify);
        also(self.reencode, reencode);
        also(self.client_verify, &format!("clients-{client_verify}"));
        also(self.scenario, scenario);
        also(self.rate, &format!("{}-per-s", rate_per_s.unwrap_or_default()));
        also(self.link, link);
        CellSpec {
            id,
            role,
            scenario: scenario.to_owned(),
            rate_per_s,
            format: format.to_owned(),
            compression: compression.to_owned(),
            batching: batching.to_owned(),
            implementation: implementation.to_owned(),
            verify: verify.to_owned(),
            reencode: reencode.to_owned(),
            client_verify: client_verify.to_owned(),
            link: link.to_owned(),
            over_links: None,
            faults: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    fn ids_of(matrix: &Matrix) -> Result<String, UnknownName> {
        let known = Known {
            formats: vec![
                ("json", vec!["library", "tuned"]),
                ("cbor", vec!["library", "tuned"]),
                ("proto", vec!["library"]),
                ("tlv", vec!["library"]),
            ],
            core_formats: vec!["json", "cbor", "proto"],
            compressions: vec!["none", "deflate", "zstd"],
            best_compressions: vec!["none", "deflate:level=1", "zstd:level=3"],
            compression_label: |text| match text.split_once(':') {
                Some((name, "level=6")) => Ok(name.to_owned()),
                Some((_, parameter)) if parameter.starts_with("level=") => Ok(text.to_owned()),
                _ => Err("known: level".to_owned()),
            },
            link_label: |text| match text {
                "wifi" | "4g:loss=1%" => Ok(text.to_owned()),
                _ => Err("known: wifi".to_owned()),
            },
            link_demand: |_, _, _, _, _, _| Ok(None),
            has_floor: |_| true,
            too_few_bursts: |_, _| None,
        };
        let cells = cells(&known, matrix)?;
        let loads = |role, any_link: bool| {
            let of_role = cells.iter().filter(move |cell| cell.role == role);
            of_role.filter(|cell| any_link || cell.link == NO_LINK).map(CellSpec::load).collect::<Vec<_>>()
        };
        assert_eq!(loads(Role::Floor, true), loads(Role::Anchor, false), "one for each load without links");
        let cells = cells.iter().filter(|cell| cell.role != Role::Floor);
        Ok(cells.map(|cell| cell.id.as_str()).collect::<Vec<_>>().join(" "))
    }

    fn ids(formats: &str, compressions: &str) -> Result<String, UnknownName> {
        ids_of(&Matrix { formats: list(formats), compressions: list(compressions), ..Matrix::default() })
    }

    #[test]
    fn the_matrix_follows_the_order_of_the_known_names() {
        assert_eq!(
            ids("proto,json", "deflate,none").unwrap(),
            "json+none json-control json+deflate proto+none proto+deflate"
        );
        assert_eq!(ids("all", "none").unwrap(), "json+none json-control cbor+none proto+none tlv+none");
        assert_eq!(ids("core", "none").unwrap(), "json+none json-control cbor+none proto+none");
        assert_eq!(ids("tlv,core", "none").unwrap(), ids("all", "none").unwrap());
        assert_eq!(ids("json,json", "none,none").unwrap(), "json+none json-control");
    }

    #[test]
    fn json_without_compression_is_always_measured() {
        assert_eq!(ids("cbor", "zstd").unwrap(), "json+none json-control cbor+zstd");
    }

    #[test]
    fn a_compression_with_parameters_is_a_cell_of_its_own_and_the_same_one_is_measured_once() {
        assert_eq!(
            ids("json,cbor", "zstd,deflate:level=4,deflate:level=6,deflate,deflate:level=4,none").unwrap(),
            "json+none json-control json+deflate:level=4 json+deflate json+zstd cbor+none cbor+deflate:level=4 \
             cbor+deflate cbor+zstd"
        );
        assert_eq!(
            ids("json", "all,deflate:level=4").unwrap(),
            "json+none json-control json+deflate json+deflate:level=4 json+zstd"
        );
        assert_eq!(
            ids("json", "best,deflate").unwrap(),
            "json+none json-control json+deflate:level=1 json+deflate json+zstd:level=3"
        );
        let error = ids("json", "deflate:colour=4").unwrap_err().to_string();
        assert_eq!(error, "compression \"deflate:colour=4\": known: level");
        assert!(ids("json", "brotli:level=4").is_err());
    }

    #[test]
    fn batches_stand_beside_single_events() {
        let matrix = |batchings: &str| Matrix {
            formats: list("json,cbor"),
            compressions: list("none,zstd"),
            batchings: list(batchings),
            ..Matrix::default()
        };
        assert_eq!(
            ids_of(&matrix("off,on")).unwrap(),
            "json+none json-control json.batched+none json+zstd json.batched+zstd cbor+none cbor.batched+none \
             cbor+zstd cbor.batched+zstd"
        );
        let only =
            Matrix { formats: list("cbor"), compressions: list("none"), ..matrix("on,on:ms=2:n=16,on") };
        assert_eq!(
            ids_of(&only).unwrap(),
            "json+none json-control cbor.batched+none cbor.batched:ms=2:n=16+none"
        );
        for (bad, says) in [
            ("maybe", "unknown batching \"maybe\"; known: off on (or: on:ms=2:n=16:bytes=8192)"),
            ("on:ms", "batching \"on:ms\": \"ms\" is no limit; known: ms, n and bytes"),
            ("on:colour=2", "\"colour=2\" is no limit"),
            ("only", "unknown batching"),
        ] {
            let error = ids_of(&matrix(bad)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn factors_with_several_values_are_named_and_missing_implementations_left_out() {
        let matrix = Matrix {
            formats: list("cbor,proto"),
            compressions: list("none"),
            implementations: list("all"),
            verifications: list("full,none"),
            ..Matrix::default()
        };
        assert_eq!(
            ids_of(&matrix).unwrap(),
            "json+none+library+full json-control+library+full cbor+none+library+full cbor+none+library+none \
             cbor+none+tuned+full cbor+none+tuned+none proto+none+library+full proto+none+library+none"
        );
        let matrix = Matrix {
            formats: list("json"),
            compressions: list("none"),
            scenarios: list("a,some/b.toml"),
            rates_per_s: vec![10, 20],
            ..Matrix::default()
        };
        assert_eq!(
            ids_of(&matrix).unwrap(),
            "json+none+a+10-per-s json-control+a+10-per-s json+none+a+20-per-s json-control+a+20-per-s \
             json+none+b+10-per-s json-control+b+10-per-s json+none+b+20-per-s json-control+b+20-per-s"
        );
    }

    #[test]
    fn a_relay_that_passes_events_on_is_a_cell_of_its_own() {
        let matrix = |reencodings: &str| Matrix {
            formats: list("json,cbor"),
            compressions: list("none"),
            reencodings: list(reencodings),
            ..Matrix::default()
        };
        assert_eq!(
            ids_of(&matrix("all")).unwrap(),
            "json+none+always json-control+always json+none+never-if-canonical cbor+none+always \
             cbor+none+never-if-canonical"
        );
        assert_eq!(ids_of(&matrix("never-if-canonical")).unwrap(), "json+none json-control cbor+none");
        let error = ids_of(&matrix("never")).unwrap_err().to_string();
        assert_eq!(error, "unknown reencoding \"never\"; known: always never-if-canonical (or: all)");
    }

    #[test]
    fn clients_that_check_are_a_cell_of_their_own() {
        let matrix = Matrix {
            formats: list("json,cbor"),
            compressions: list("none"),
            client_verifications: list("none,full"),
            ..Matrix::default()
        };
        assert_eq!(
            ids_of(&matrix).unwrap(),
            "json+none+clients-none json-control+clients-none json+none+clients-full cbor+none+clients-none \
             cbor+none+clients-full"
        );
    }

    #[test]
    fn a_link_is_part_of_the_load_and_has_its_own_anchor() {
        let matrix = |links: &str| Matrix {
            formats: list("json,cbor"),
            compressions: list("none"),
            links: list(links),
            ..Matrix::default()
        };
        assert_eq!(
            ids_of(&matrix("wifi,none,4g:loss=1%,wifi")).unwrap(),
            "json+none+wifi json-control+wifi cbor+none+wifi json+none+none json-control+none cbor+none+none \
             json+none+4g:loss=1% json-control+4g:loss=1% cbor+none+4g:loss=1%"
        );
        assert_eq!(ids_of(&matrix("wifi")).unwrap(), "json+none json-control cbor+none");
        let error = ids_of(&matrix("5g")).unwrap_err().to_string();
        assert_eq!(error, "link \"5g\": known: wifi");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = ids("xml", "none").unwrap_err().to_string();
        assert_eq!(error, "unknown format \"xml\"; known: json cbor proto tlv (or: core all)");
        let error = ids("json", "none,brotli").unwrap_err().to_string();
        assert_eq!(error, "unknown compression \"brotli\"; known: none deflate zstd (or: all best)");
        let tuned =
            |formats| Matrix { formats: list(formats), implementations: list("tuned"), ..Matrix::default() };
        let error = ids_of(&tuned("proto")).unwrap_err().to_string();
        assert_eq!(error, "unknown implementation of proto \"tuned\"; known: library (or: all)");
        assert!(ids_of(&tuned("all")).unwrap().ends_with("cbor+zstd"));
    }

    #[test]
    fn a_matrix_file_states_what_differs_from_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m.toml");
        fs::write(&file, "formats = [\"json\"]\nverifications = [\"full\", \"none\"]\n").unwrap();
        let matrix = Matrix::read(&file).unwrap();
        assert_eq!((matrix.formats, matrix.verifications), (list("json"), list("full,none")));
        assert_eq!(matrix.compressions, Matrix::default().compressions);
        fs::write(&file, "format = [\"json\"]\n").unwrap();
        let error = format!("{:#}", Matrix::read(&file).unwrap_err());
        assert!(error.contains("unknown field `format`") && error.contains("rates_per_s"), "{error}");
    }
}
