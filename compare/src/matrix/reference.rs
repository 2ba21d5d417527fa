//! The cell that a cell is compared with, like with like.

use super::{BASE_COMPRESSION, BASE_FORMAT, CellSpec};
use crate::result::{CellResult, Role};

/// What decides about the reference of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared<'a> {
    role: Role,
    format: &'a str,
    compression: &'a str,
    batching: &'a str,
    implementation: &'a str,
    /// Checks of the relay, encoding anew, checks of the clients.
    setting: [&'a str; 3],
}

impl<'a> From<&'a CellSpec> for Compared<'a> {
    fn from(cell: &'a CellSpec) -> Compared<'a> {
        Compared {
            role: cell.role,
            format: &cell.format,
            compression: &cell.compression,
            batching: &cell.batching,
            implementation: &cell.implementation,
            setting: [&cell.verify, &cell.reencode, &cell.client_verify],
        }
    }
}

impl<'a> From<&'a CellResult> for Compared<'a> {
    fn from(result: &'a CellResult) -> Compared<'a> {
        let cell = &result.cell;
        Compared {
            role: result.role,
            format: &cell.format,
            compression: &cell.compression,
            batching: &cell.batching,
            implementation: &cell.implementation,
            setting: [&cell.verify, &cell.reencode, &cell.client_verify],
        }
    }
}

/// The index of the reference of `cells[own]` among the cells of one load. For a format it is JSON
/// with the same compression, batching, implementation, checks and encoding anew; for JSON in
/// batches, JSON event by event with the same compression; for any other JSON cell, JSON without
/// compression. Without such a cell it is the next simpler one, at last the anchor. `None` for the
/// anchor and for the floor, which is never ranked.
pub(crate) fn reference(cells: &[Compared<'_>], own: usize) -> Option<usize> {
    let cell = cells[own];
    if matches!(cell.role, Role::Anchor | Role::Floor) {
        return None;
    }
    let find = |format: &str, compression: &str, batching: &str, implementation: &str| {
        let wanted = (format, compression, batching, implementation, cell.setting);
        (0..cells.len()).filter(|index| *index != own).find(|index| {
            let other = cells[*index];
            matches!(other.role, Role::Anchor | Role::Cell)
                && (other.format, other.compression, other.batching, other.implementation, other.setting)
                    == wanted
        })
    };
    let json = |compression, batching| find(BASE_FORMAT, compression, batching, cell.implementation);
    let anchor = cells.iter().position(|other| other.role == Role::Anchor);
    let singly = anchor.map_or(cell.batching, |anchor| cells[anchor].batching);
    let like = match cell.format == BASE_FORMAT {
        false => json(cell.compression, cell.batching),
        true if cell.batching != singly => json(cell.compression, singly),
        true => None,
    };
    // Formats are never ranked across implementations: a tuned format without tuned JSON is
    // compared with its library.
    let other = cells.iter().map(|other| other.implementation).find(|name| *name != cell.implementation);
    like.or_else(|| json(BASE_COMPRESSION, cell.batching))
        .or_else(|| find(cell.format, cell.compression, cell.batching, other?))
        .or(anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell<'a>(format: &'a str, compression: &'a str, batching: &'a str, by: &'a str) -> Compared<'a> {
        let role = Role::Cell;
        Compared {
            role,
            format,
            compression,
            batching,
            implementation: by,
            setting: ["full", "always", "none"],
        }
    }

    #[test]
    fn like_is_compared_with_like_and_else_with_the_next_simpler_cell() {
        let anchor = Compared { role: Role::Anchor, ..cell("json", "none", "off", "library") };
        let cells = [
            anchor,
            Compared { role: Role::Floor, ..anchor },
            Compared { role: Role::Control, ..anchor },
            cell("json", "deflate", "off", "library"),
            cell("json", "deflate", "on", "library"),
            cell("cbor", "deflate", "on", "library"),
            cell("cbor", "zstd", "off", "library"),
            cell("cbor", "zstd", "off", "tuned"),
            Compared { setting: ["full", "always", "id"], ..cell("cbor", "none", "off", "library") },
        ];
        let found: Vec<_> = (0..cells.len()).map(|own| reference(&cells, own)).collect();
        let anchor = Some(0);
        assert_eq!(
            found,
            [None, None, anchor, anchor, Some(3), Some(4), anchor, Some(6), anchor],
            "JSON is compared with JSON without compression, in batches event by event; a tuned format without tuned \
             JSON with its library"
        );
    }
}
