//! Sizes a plan over links before anything runs: whether this host can emulate it, how long its
//! blocks must be, and how long they last.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use cell::Cell;
use link::Demand;

use crate::{
    matrix::{CellSpec, OverLinks},
    usage::{skips_invalid, values},
};
use program::UsageError;
use report::result::Config;
use workload::scenario::Scenario;

/// The longest block that is chosen for a slow link, in seconds: beyond it somebody has to say so.
const LONGEST_SECONDS: u32 = 120;

/// Says why a scenario cannot be played: its populations have links, which are emulated for a relay
/// that a client starts.
///
/// # Errors
/// When there is no such scenario, or a change of it does not apply.
pub(super) fn needs_own_relay(config: &Config) -> Result<Option<String>> {
    let others = match (&config.url, config.relays.is_empty()) {
        (Some(_), _) => "--url",
        (None, false) => "--relay",
        (None, true) => return Ok(None),
    };
    let set = values(&config.client_args, "--set");
    for name in &config.scenarios {
        if Scenario::load_with(name, &set)?.has_links() {
            return Ok(Some(format!(
                "populations of {name} have links, which need a relay that the run starts: leave out {others}, or set \
                 their link to none"
            )));
        }
    }
    Ok(None)
}

/// Demand of each cell on links; `None` without any.
type Demands = Vec<Option<Demand>>;

/// Makes blocks as long as a session over the slowest link, unless `seconds` were given. Writes the
/// length of a block and the host's capacity into each cell, and passes sentences about the choice to
/// `note`. Returns why this host cannot measure the plan.
///
/// # Errors
/// When a plan cannot be made, or no process can be started.
pub(super) fn size(
    seconds: Option<u32>,
    config: &mut Config,
    cells: &mut [CellSpec],
    note: impl Fn(&str),
) -> Result<Option<String>> {
    size_by(workload::link_demand, seconds, (config, cells), note)
}

/// Demand of a cell on links, by changes of its scenario, seconds, corpus and whether what in it is
/// no valid event is skipped.
type LinkDemand = fn(&Cell, &[String], u32, Option<&str>, bool) -> Result<Option<Demand>>;

/// Sizes blocks to the packets that this host can emulate. Returns why it cannot, if so.
fn size_by(
    demand: LinkDemand,
    seconds: Option<u32>,
    (config, cells): (&mut Config, &mut [CellSpec]),
    note: impl Fn(&str),
) -> Result<Option<String>> {
    let mut demands = lengthened(demand, seconds, config, cells, &note)?;
    if demands.iter().all(Option::is_none) {
        return Ok(None);
    }
    // The host's capacity as the arguments for every client state it.
    let given =
        values(&config.client_args, "--link-capacity").last().and_then(|text| text.parse::<f64>().ok());
    let measured = match given {
        Some(_) => None,
        None => match measured_capacity(&demands, &note)? {
            Ok(packets_per_s) => packets_per_s,
            Err(why) => return Ok(Some(why)),
        },
    };
    if let Some(carried) = given.or(measured) {
        let planned = config.seconds;
        while let Some(reason) = beyond(cells, &demands, carried) {
            if seconds.is_some() || config.seconds * 2 > LONGEST_SECONDS {
                return Ok(Some(reason));
            }
            config.seconds *= 2;
            demands = self::demands(demand, config, cells)?;
        }
        if config.seconds > planned {
            note(&format!(
                "Blocks of {} s, so that fewer sessions meet than this host cannot emulate at once",
                config.seconds
            ));
        }
    }
    for (cell, demand) in cells.iter_mut().zip(&demands) {
        let packets_per_s = measured.map(measure::whole);
        cell.over_links = demand.as_ref().map(|demand| OverLinks { lasts: demand.lasts, packets_per_s });
    }
    Ok(None)
}

/// Why the first cell that asks for more packets a second than the host carries cannot be.
fn beyond(cells: &[CellSpec], demands: &Demands, carried: f64) -> Option<String> {
    let mut pairs = cells.iter().zip(demands.iter());
    pairs.find_map(|(cell, demand)| {
        let demand = demand.as_ref().filter(|demand| demand.exceeds(carried))?;
        Some(refusal(cell, demand, carried))
    })
}

/// Demand of each cell on links, with blocks as long as sessions take.
fn lengthened(
    demand: LinkDemand,
    seconds: Option<u32>,
    config: &mut Config,
    cells: &[CellSpec],
    note: impl Fn(&str),
) -> Result<Demands> {
    let mut demands = demands(demand, config, cells)?;
    let Some((name, session)) = longest(cells, &demands) else { return Ok(demands) };
    let needed = u32::try_from(session.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
    let session_s = session.as_secs_f64();
    match seconds {
        _ if needed <= config.seconds => {}
        Some(seconds) => note(&format!(
            "warning: a session of {name} takes up to {session_s:.1} s in JSON, longer than blocks of {seconds} s in which \
             others publish; --seconds {needed} would do"
        )),
        None => {
            config.seconds = needed.min(LONGEST_SECONDS);
            note(&format!(
                "Blocks of {} s, because a session of {name} takes up to {session_s:.1} s in JSON (--seconds chooses \
                 another length)",
                config.seconds
            ));
            demands = self::demands(demand, config, cells)?;
        }
    }
    Ok(demands)
}

/// The load with the longest session, by name, and that session; `None` without links.
fn longest(cells: &[CellSpec], demands: &Demands) -> Option<(String, Duration)> {
    let all = cells.iter().zip(demands).filter_map(|(cell, demand)| Some((cell, demand.as_ref()?.session)));
    let (cell, session) = all.max_by_key(|(_, session)| *session)?;
    Some((place(cell), session))
}

/// Packets a second that this host carries on time, where the plan asks for many; or why it carries
/// none.
fn measured_capacity(demands: &Demands, note: impl Fn(&str)) -> Result<Result<Option<f64>, String>> {
    let program = measure::own_program().context("cannot find this program's own file")?;
    if demands.iter().flatten().all(Demand::is_little) {
        return Ok(link::probe(&program)?.map(|_| None));
    }
    note("Measuring how many packets a second this host emulates");
    let carries = match link::capacity(&program)? {
        Ok(carries) => carries,
        Err(why) => return Ok(Err(why)),
    };
    let busiest = demands.iter().flatten().map(Demand::peak_packets_per_s).fold(0.0, f64::max);
    note(&format!(
        "This host emulates {:.0} packets a second on time ({:.1} µs each); the plan asks for {busiest:.0} at most",
        carries.packets_per_s,
        carries.ns_per_packet / 1e3
    ));
    Ok(Ok(Some(carries.packets_per_s)))
}

fn demands(demand: LinkDemand, config: &Config, cells: &[CellSpec]) -> Result<Demands> {
    let set = values(&config.client_args, "--set");
    let (corpus, skips) = (config.corpus.as_deref(), skips_invalid(&config.client_args));
    let mut by_load: BTreeMap<Vec<String>, Option<Demand>> = BTreeMap::new();
    let mut of = |cell: &CellSpec| -> Result<Option<Demand>> {
        if let Some(known) = by_load.get(&cell.load()) {
            return Ok(known.clone());
        }
        let found = demand(&cell.cell, &set, config.seconds, corpus, skips)
            .with_context(|| format!("cannot plan {}", place(cell)))
            .map_err(UsageError)?;
        by_load.insert(cell.load(), found.clone());
        Ok(found)
    };
    cells.iter().map(&mut of).collect()
}

/// The scenario and the link of a cell.
fn place(cell: &CellSpec) -> String {
    match &cell.cell.link {
        None => cell.cell.scenario.clone(),
        Some(link) => format!("{} over {}", cell.cell.scenario, link.spelled_out()),
    }
}

fn refusal(cell: &CellSpec, demand: &Demand, carried: f64) -> String {
    format!(
        "{} asks for {:.0} packets a second, and this host emulates {carried:.0} on time: {:.0} % of the packets would be \
         late, where 1 % makes a block invalid. Let sessions begin over a longer time (--seconds), connect fewer clients \
         (-- --set KEY=VALUE), or take a slower link",
        place(cell),
        demand.peak_packets_per_s(),
        demand.share_beyond(carried) * 100.0
    )
}

#[cfg(test)]
mod tests {
    use cell::Factor;

    use super::*;
    use crate::matrix::{Matrix, cells};

    /// A session of 8 s over `edge`, of one over the others, whatever the block's length. What all
    /// send is spread over the block, over `lte` at a rate.
    fn demand(cell: &Cell, _: &[String], block: u32, _: Option<&str>, _: bool) -> Result<Option<Demand>> {
        let Some(link) = &cell.link else { return Ok(None) };
        let (seconds, times) = match link.label().as_str() {
            "edge" => (8, 1),
            "lte" => (1, u64::from(block)),
            _ => (1, 1),
        };
        let mut demand = Demand::default();
        demand.add(1_448_000 * times, 0.0, f64::from(block) - 0.01);
        demand.session = Duration::from_millis(seconds * 1_000 - 100);
        demand.lasts = demand.session * 2;
        Ok(Some(demand))
    }

    /// Sizes a plan for a host that carries so many packets a second.
    fn sized_for(
        capacity: &str,
        seconds: Option<u32>,
        links: &[&str],
    ) -> (u32, Vec<CellSpec>, Vec<String>, Option<String>) {
        let matrix = Matrix::default()
            .with(Factor::Format, ["json"])
            .with(Factor::Compression, ["none"])
            .with(Factor::Link, links.iter().copied());
        let mut cells = cells(&matrix).unwrap();
        let mut config = Config {
            profile: "quick".to_owned(),
            rounds: 6,
            seconds: seconds.unwrap_or(1),
            seed: 1,
            client_args: vec!["--link-capacity".to_owned(), capacity.to_owned()],
            ..Config::default()
        };
        let notes = std::cell::RefCell::new(Vec::new());
        let note = |line: &str| notes.borrow_mut().push(line.to_owned());
        let refused = size_by(demand, seconds, (&mut config, &mut cells), note).unwrap();
        (config.seconds, cells, notes.into_inner(), refused)
    }

    fn sized(seconds: Option<u32>, links: &[&str]) -> (u32, Vec<CellSpec>, Vec<String>) {
        let (seconds, cells, notes, refused) = sized_for("1000000", seconds, links);
        assert_eq!(refused, None);
        (seconds, cells, notes)
    }

    #[test]
    fn blocks_are_as_long_as_a_session_over_the_slowest_link_unless_seconds_are_given() {
        let (seconds, cells, notes) = sized(None, &["wifi", "edge", "none"]);
        assert_eq!(seconds, 8);
        assert!(notes[0].contains("over edge takes up to 7.9 s in JSON"), "{notes:?}");
        for cell in &cells {
            let lasts = cell.over_links.map(|over| over.lasts.as_millis());
            let expected =
                cell.cell.link.as_ref().map(|link| if link.label() == "edge" { 15_800 } else { 1_800 });
            assert_eq!(lasts, expected, "{}", cell.id);
        }
        let (seconds, _, notes) = sized(Some(3), &["edge"]);
        assert_eq!(seconds, 3);
        assert!(notes[0].starts_with("warning: ") && notes[0].ends_with("--seconds 8 would do"), "{notes:?}");
        assert_eq!(sized(Some(8), &["edge"]).2, Vec::<String>::new());
        assert_eq!(sized(None, &["none"]).0, 1);
    }

    #[test]
    fn a_plan_beyond_the_host_has_longer_blocks_or_is_refused_with_what_it_asks_for() {
        // 1,500 packets over a block: 188 a second in 8 s, 94 in 16.
        let (seconds, cells, notes, refused) = sized_for("100", None, &["edge"]);
        assert_eq!((seconds, refused), (16, None));
        assert!(notes.last().unwrap().starts_with("Blocks of 16 s, so that"), "{notes:?}");
        assert!(cells.iter().all(|cell| cell.over_links.is_some_and(|over| over.packets_per_s.is_none())));
        let (_, cells, _, refused) = sized_for("100", Some(8), &["edge"]);
        let text = refused.unwrap();
        assert!(
            text.contains("over edge asks for 188") && text.contains("emulates 100 on time: 100 %"),
            "{text}"
        );
        assert!(cells.iter().all(|cell| cell.over_links.is_none()));
        // Arrivals at a rate come for twice as long, too.
        let (seconds, _, _, refused) = sized_for("100", None, &["lte"]);
        assert!(refused.unwrap().contains("over lte asks for 1500"), "{seconds}");
    }
}
