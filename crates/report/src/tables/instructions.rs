//! Counts as tables.
use crate::{
    number::{ratio, three},
    result::{Conditions, Instructions, RESOLUTION, Row},
    tables::{
        check::verdict,
        table::{NOTHING, Table},
    },
};

/// The text above a committed table.
const HEAD: &str = include_str!("instructions-head.txt");

impl Instructions {
    /// The page of a committed count of hot paths, in Markdown.
    pub fn page(&self) -> String {
        let Conditions { rustc, optimised, valgrind, libc, processor } = &self.conditions;
        let rustc = rustc.as_deref().unwrap_or("an unknown compiler");
        let optimised = if *optimised { "optimised" } else { "NOT optimised" };
        let table = self.paths().markdown();
        format!(
            "{HEAD}\n{table}\nOther counts compare with these only when made under the same conditions:\n\n\
             - {rustc}, {optimised}\n- {valgrind}\n- {libc}\n- {processor}\n"
        )
    }

    /// One row a path.
    pub fn paths(&self) -> Table {
        let mut table = Table::new(1, &["path", "units", "relay side", "client side"]);
        for row in &self.rows {
            table.rows.push(vec![
                row.name.clone(),
                row.units.to_string(),
                count(row.relay),
                count(row.client),
            ]);
        }
        table
    }

    /// One row a cell: instructions of a delivery at both ends against the cell's reference, and of
    /// a first delivery at the relay. `cells` are ids with those of their references.
    pub fn cells<'c>(&self, cells: impl Iterator<Item = (&'c str, Option<&'c str>)>) -> Table {
        let headings =
            ["cell", "relay instr./event", "", "client instr./event", "", "relay, first delivery", "later"];
        let mut table = Table::new(1, &headings);
        for (id, reference) in cells {
            let of = |id: &str, part: &str| self.row(&format!("{id} {part}"));
            let Some(own) = of(id, "steady") else { continue };
            let reference = reference.and_then(|reference| of(reference, "steady"));
            let against = |of: fn(&Row) -> f64| {
                let said = |other: &Row| {
                    let repeats = own.repeat_difference.max(other.repeat_difference);
                    let against = of(own) / of(other);
                    format!("{} {}", ratio(against), verdict(against, repeats))
                };
                reference.map_or_else(|| NOTHING.to_owned(), said)
            };
            let sent = |part| of(id, part).map_or_else(|| NOTHING.to_owned(), |row| count(row.relay));
            table.rows.push(vec![
                id.to_owned(),
                count(own.relay),
                against(|row| row.relay),
                count(own.client),
                against(|row| row.client),
                sent("first_delivery"),
                sent("later_delivery"),
            ]);
        }
        table
    }

    /// The meaning of the counts, and how well they repeat.
    pub fn note(&self) -> String {
        let differ = self.repeat_difference();
        let repeats = if differ <= RESOLUTION {
            "a verdict needs 0.2 %"
        } else {
            "a verdict needs 0.2 %, and more than what two counts of its path differ by"
        };
        format!(
            "Instructions in user space, counted by {} in one process: not time. Kernel, sockets and the waiting of \
             processes are not in it. Two counts differ by at most {:.3} % ({repeats}). {}, {}, {}.",
            self.conditions.valgrind,
            differ * 100.0,
            self.conditions.rustc.as_deref().unwrap_or("an unknown compiler"),
            if self.conditions.optimised {
                "optimised"
            } else {
                "NOT optimised: says nothing about a format"
            },
            self.conditions.processor,
        )
    }
}

/// Instructions in thousands from ten thousand on.
fn count(instructions: f64) -> String {
    match () {
        () if instructions == 0.0 => NOTHING.to_owned(),
        () if instructions >= 1e4 => format!("{} k", three(instructions / 1e3)),
        () => three(instructions),
    }
}
