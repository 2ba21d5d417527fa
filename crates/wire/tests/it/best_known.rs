//! The best-known settings against the committed table of docs/transport.md.

use std::{fs, path::Path};

use wire::Compression;

/// A setting may send this many times the fewest bytes of its compression.
const BYTES: f64 = 1.1;

/// One row of the table: bytes and µs of a delivery, in JSON and in DannyPack. A dash is a time that
/// was not measured, and beats none.
struct Row {
    setting: String,
    bytes: [f64; 2],
    cpu: [f64; 2],
}

impl Row {
    /// `None` for lines of other tables.
    fn read(line: &str) -> Option<Row> {
        let fields: Vec<&str> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
        let [setting, fields @ .., _memory] = fields.as_slice() else { return None };
        let number =
            |field: &&str| field.replace(['*', ','], "").replace('–', "nan").trim().parse::<f64>().ok();
        let [json, json_cpu, dannypack, dannypack_cpu]: [f64; 4] =
            fields.iter().map(number).collect::<Option<Vec<_>>>()?.try_into().ok()?;
        let (setting, _) = setting.split_once('`')?;
        Some(Row { setting: setting.to_owned(), bytes: [json, dannypack], cpu: [json_cpu, dannypack_cpu] })
    }

    /// Whether the other is no worse in both bytes and CPU in this format, and better in one.
    fn is_beaten_by(&self, other: &Row, format: usize) -> bool {
        let (own, other) = ([self.bytes[format], self.cpu[format]], [other.bytes[format], other.cpu[format]]);
        own != other && other[0] <= own[0] && other[1] <= own[1]
    }
}

#[test]
fn the_best_known_settings_follow_from_the_committed_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/transport.md");
    let text = fs::read_to_string(file).unwrap();
    let rows: Vec<Row> = text.lines().filter_map(Row::read).collect();
    assert!(rows.len() > 20, "{} rows: the table has another layout", rows.len());
    let best = Compression::NAMES.map(|name| {
        let own: Vec<&Row> = rows.iter().filter(|row| row.setting.split(':').next() == Some(name)).collect();
        let fits = |row: &&&Row| {
            [0, 1].into_iter().all(|format| {
                let fewest = own.iter().map(|other| other.bytes[format]).fold(f64::INFINITY, f64::min);
                let beaten = own.iter().any(|other| row.is_beaten_by(other, format));
                !beaten && row.bytes[format] <= BYTES * fewest
            })
        };
        let cpu = |row: &&&Row| row.cpu.iter().sum::<f64>();
        own.iter().filter(fits).min_by(|a, b| cpu(a).total_cmp(&cpu(b))).unwrap().setting.as_str()
    });
    assert_eq!(best, Compression::BEST_KNOWN);
}
