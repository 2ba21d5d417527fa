//! Times the rows, interleaved.

use std::time::Instant;

use serde::Serialize;

use crate::{rows::Row, sets::Sets, what::What};

/// Columns of fewer events are gone through several times for one time.
const MIN_EVENTS: usize = 100;

/// The times of a row in one column.
#[derive(Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) format: &'static str,
    pub(crate) by: &'static str,
    #[serde(serialize_with = "name")]
    pub(crate) what: What,
    /// Which events: those of a set, see [`Sets`].
    pub(crate) set: usize,
    /// `None`: all events.
    pub(crate) kind: Option<u16>,
    /// Nanoseconds an event, a value for each round.
    pub(crate) rounds_ns: Vec<f64>,
}

fn name<S: serde::Serializer>(what: &What, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(what.name())
}

/// Times every row in every column once a round.
pub(crate) fn measure(rows: &[Row<'_>], sets: &Sets<'_>, rounds: usize) -> Vec<Times> {
    let columns = sets.sets[0].groups.len();
    let mut ns = vec![vec![Vec::with_capacity(rounds); columns]; rows.len()];
    let mut buffer = Vec::new();
    for round in 0..=rounds {
        eprintln!(
            "{}",
            if round == 0 { "warming up …".to_owned() } else { format!("round {round} of {rounds}") }
        );
        for place in 0..rows.len() {
            let index = (place + round * 37) % rows.len();
            let row = &rows[index];
            for (column, group) in sets.sets[row.set].groups.iter().enumerate() {
                let time = pass(row, &group.members, &mut buffer);
                if round > 0 {
                    ns[index][column].push(time); // the first round warms caches and branch predictors
                }
            }
        }
    }
    let of_row = |(row, ns): (&Row<'_>, Vec<Vec<f64>>)| of_row(row, &ns, sets, rounds);
    rows.iter().zip(ns).flat_map(of_row).collect()
}

/// Nanoseconds an event; 0 of no events.
fn pass(row: &Row<'_>, members: &[usize], buffer: &mut Vec<u8>) -> f64 {
    if members.is_empty() {
        return 0.0;
    }
    if row.what != What::PeekCold {
        (row.pass)(buffer, members); // the frames are then where a transport that just unmasked them leaves them
    }
    let mut events = 0;
    let start = Instant::now();
    while events < MIN_EVENTS {
        events += (row.pass)(buffer, members);
    }
    start.elapsed().as_nanos() as f64 / events as f64
}

/// The columns of the kinds, and all events together.
fn of_row(row: &Row<'_>, ns: &[Vec<f64>], sets: &Sets<'_>, rounds: usize) -> Vec<Times> {
    let set = &sets.sets[row.set];
    let times = |kind, rounds_ns| {
        let Row { set, format, by, what, .. } = *row;
        Times { format, by, what, set, kind, rounds_ns }
    };
    let weighted = |round: usize| {
        let sum =
            set.groups.iter().zip(ns).map(|(group, ns)| group.members.len() as f64 * ns[round]).sum::<f64>();
        sum / set.events.len() as f64
    };
    let all = times(None, (0..rounds).map(weighted).collect());
    let groups = set.groups.iter().zip(ns).filter(|(group, _)| !group.members.is_empty());
    let kinds = groups.filter_map(|(group, ns)| Some(times(Some(group.kind?), ns.clone())));
    [all].into_iter().chain(kinds).collect()
}
