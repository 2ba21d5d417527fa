//! The cell that a cell is compared with, like with like.

use cell::{Factor, Side};

use crate::result::Role;

/// The format every ratio refers to.
pub const BASE_FORMAT: &str = "json";

/// The compression every ratio refers to.
pub const BASE_COMPRESSION: &str = "none";

/// A cell's values of the factors of these sides.
fn values<const N: usize>(cell: &measure::Cell, sides: [Side; N]) -> impl Iterator<Item = Option<&str>> {
    sides.into_iter().flat_map(Factor::on_side).map(|factor| (factor.row().recorded)(cell))
}

/// A cell's values of every factor that no reference of another format may differ in.
fn setting(cell: &measure::Cell) -> impl Iterator<Item = Option<&str>> {
    values(cell, [Side::Relay, Side::Clients, Side::Program])
}

/// The index of the reference of `cells[own]` among the cells of one load. For a format it is JSON
/// with the same compression, batching, implementation, checks and encoding anew; for JSON in
/// batches, JSON event by event with the same compression; for any other JSON cell, JSON without
/// compression. Without such a cell it is the next simpler one, at last the anchor. A cell of
/// another relay is compared with the cell of the first that is sent the same, and never with one that
/// is not. `None` for the anchor, for a cell without any such other, and for the floor, which is
/// never ranked.
pub fn reference(cells: &[(Role, &measure::Cell)], own: usize) -> Option<usize> {
    let (role, cell) = cells[own];
    if matches!(role, Role::Anchor | Role::Floor) {
        return None;
    }
    let anchor = cells.iter().position(|(role, _)| *role == Role::Anchor);
    let first = anchor.map(|anchor| cells[anchor].1);
    if let Some(first) = first.filter(|first| first.relay != cell.relay) {
        let sides = [Side::Wire, Side::Relay, Side::Clients];
        let is_of_first = |(role, other): &(Role, &measure::Cell)| {
            matches!(role, Role::Anchor | Role::Cell) && other.relay == first.relay
        };
        let sent = |one: &measure::Cell| -> Vec<_> {
            values(one, sides).map(|value| value.map(sent_by_relay)).collect()
        };
        let same = |other: &(Role, &_)| is_of_first(other) && values(other.1, sides).eq(values(cell, sides));
        let alike = |other: &(Role, &_)| is_of_first(other) && sent(other.1) == sent(cell);
        let found = cells.iter().position(same).or_else(|| cells.iter().position(alike));
        if found.is_some() {
            return found;
        }
    }
    let find = |format: &str, compression: &str, batching: &str, implementation: &str| {
        (0..cells.len()).filter(|index| *index != own).find(|index| {
            let (role, other) = cells[*index];
            matches!(role, Role::Anchor | Role::Cell)
                && [&*other.format, &other.compression, &other.batching, &other.implementation]
                    == [format, compression, batching, implementation]
                && setting(other).eq(setting(cell))
        })
    };
    let json =
        |compression: &str, batching: &str| find(BASE_FORMAT, compression, batching, &cell.implementation);
    let singly = first.map_or(&cell.batching, |first| &first.batching);
    let like = match cell.format == BASE_FORMAT {
        false => json(&cell.compression, &cell.batching),
        true if cell.batching != *singly => json(&cell.compression, singly),
        true => None,
    };
    // Formats are never ranked across implementations: a tuned format without tuned JSON is
    // compared with its library.
    let mut others = cells.iter().map(|(_, other)| &other.implementation);
    let other = others.find(|name| **name != cell.implementation);
    like.or_else(|| json(BASE_COMPRESSION, &cell.batching))
        .or_else(|| find(&cell.format, &cell.compression, &cell.batching, other?))
        .or(anchor.filter(|_| first.is_some_and(|first| first.relay == cell.relay)))
}

/// A compression without its parameters for clients: relays may grant these differently and send the same
/// bytes.
fn sent_by_relay(compression: &str) -> String {
    compression.split(':').filter(|part| !part.starts_with("upload_")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(format: &str, compression: &str, batching: &str, by: &str) -> (Role, measure::Cell) {
        let cell = measure::Cell {
            format: format.to_owned(),
            compression: compression.to_owned(),
            batching: batching.to_owned(),
            implementation: by.to_owned(),
            ..cell::Cell::default().recorded()
        };
        (Role::Cell, cell)
    }

    fn references(cells: &[(Role, measure::Cell)]) -> Vec<Option<usize>> {
        let cells: Vec<_> = cells.iter().map(|(role, cell)| (*role, cell)).collect();
        (0..cells.len()).map(|own| reference(&cells, own)).collect()
    }

    #[test]
    fn a_cell_of_another_relay_is_compared_with_what_the_first_sends_alike() {
        let of = |relay: &str, compression: &str| {
            let mut cell = cell("json", compression, "off", "library");
            cell.1.relay = relay.to_owned();
            cell
        };
        let anchor = (Role::Anchor, of("old", "none").1);
        let control = (Role::Control, of("old", "none").1);
        // A compression that the first relay does not grant is compared with JSON at the same relay.
        // Uploads do not matter, because relays grant them differently.
        for (cells, expected) in [
            (
                [control, of("old", "deflate"), of("new", "none"), of("new", "deflate"), of("new", "zstd")],
                [Some(0), Some(0), Some(0), Some(2), Some(3)],
            ),
            (
                [
                    of("old", "deflate:upload_takeover=no"),
                    of("new", "deflate"),
                    of("new", "deflate-no-takeover"),
                    of("new", "deflate:window_bits=9:upload_window_bits=9"),
                    of("old", "zstd"),
                ],
                [Some(0), Some(1), None, None, Some(0)],
            ),
        ] {
            let cells: Vec<_> = std::iter::once(anchor.clone()).chain(cells).collect();
            let found = references(&cells);
            assert_eq!((found[0], &found[1..]), (None, &expected[..]));
        }
    }

    #[test]
    fn like_is_compared_with_like_and_else_with_the_next_simpler_cell() {
        let (_, json) = cell("json", "none", "off", "library");
        let mut verifying = cell("cbor", "none", "off", "library");
        verifying.1.verify = "id".to_owned();
        let cells = [
            (Role::Anchor, json.clone()),
            (Role::Floor, json.clone()),
            (Role::Control, json),
            cell("json", "deflate", "off", "library"),
            cell("json", "deflate", "on", "library"),
            cell("cbor", "deflate", "on", "library"),
            cell("cbor", "zstd", "off", "library"),
            cell("cbor", "zstd", "off", "tuned"),
            verifying,
        ];
        let anchor = Some(0);
        assert_eq!(
            references(&cells),
            [None, None, anchor, anchor, Some(3), Some(4), anchor, Some(6), anchor],
            "JSON is compared with JSON without compression, in batches event by event; a tuned format without tuned \
             JSON with its library"
        );
    }
}
