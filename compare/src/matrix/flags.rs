//! The flags of programs that measure several values of a factor.

use std::collections::BTreeMap;

use cell::{Factor, Saturate, Side};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, FromArgMatches};

use super::Matrix;
use report::reference::BASE_COMPRESSION;

/// The values of factors that a command line asks for; a factor without a flag keeps its own. With
/// `LOADS` there are flags for loads, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values<const LOADS: bool>(BTreeMap<Factor, Vec<String>>);

/// The scenarios without their flag.
const NAMES: &str = "scenario_names";

/// The flags of factors as one name, for flags that contradict them.
pub(crate) const FACTORS: &str = "factors";

impl<const LOADS: bool> Values<LOADS> {
    /// The factors that have a flag here: rates are numbers, or chosen by a pilot, and relays come
    /// with their commands.
    fn factors() -> impl Iterator<Item = Factor> {
        let has_flag = |factor: &Factor| match factor.row().side {
            Side::Load => LOADS && *factor != Factor::Rate,
            Side::Program => false,
            Side::Wire | Side::Relay | Side::Clients => true,
        };
        Factor::in_help().into_iter().filter(has_flag)
    }

    /// Whether a factor has a flag on this command line.
    pub(crate) fn has(&self, factor: Factor) -> bool {
        self.0.contains_key(&factor)
    }

    /// Whether a flag here sets a load other than the scenario.
    pub(crate) fn sets_load(&self) -> bool {
        Factor::on_side(Side::Load).any(|factor| factor != Factor::Scenario && self.has(factor))
    }

    /// The first flag of the command line whose value another's relay does not tell, or that only a
    /// relay of our own is behind.
    pub(crate) fn of_the_relay(&self) -> Option<String> {
        Factor::on_side(Side::Relay)
            .chain([Factor::Link])
            .find(|factor| self.has(*factor))
            .map(|factor| format!("--{}", factor.row().name))
    }

    /// The matrix without any flag: one compression where there are no rounds.
    pub(crate) fn standing() -> Matrix {
        let matrix = Matrix::default();
        if LOADS { matrix } else { matrix.with(Factor::Compression, [BASE_COMPRESSION]) }
    }

    /// The matrix with these values instead of its own.
    pub(crate) fn over(&self, matrix: Matrix) -> Matrix {
        self.0.iter().fold(matrix, |matrix, (factor, values)| matrix.with(*factor, values.clone()))
    }
}

impl<const LOADS: bool> clap::Args for Values<LOADS> {
    fn augment_args(command: Command) -> Command {
        let flags: Vec<Factor> = Values::<LOADS>::factors().collect();
        let group = ArgGroup::new(FACTORS).args(flags.iter().map(|factor| factor.row().name)).multiple(true);
        let standing = Values::<LOADS>::standing();
        let flags = flags.into_iter().map(|factor| flag(factor, standing.values(factor)));
        let command = flags.fold(command, Command::arg);
        if !LOADS {
            return command.group(group);
        }
        let row = Factor::Scenario.row();
        let names = Arg::new(NAMES).value_name(row.value_name).value_delimiter(',').hide(true);
        command.arg(names.conflicts_with(row.name)).group(group.arg(NAMES))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Values::<LOADS>::augment_args(command)
    }
}

impl<const LOADS: bool> FromArgMatches for Values<LOADS> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Values<LOADS>, clap::Error> {
        let mut values = Values::default();
        values.update_from_arg_matches(matches)?;
        Ok(values)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for factor in Values::<LOADS>::factors() {
            if let Some(texts) = matches.get_many::<String>(factor.row().name) {
                self.0.insert(factor, texts.cloned().collect());
            }
        }
        if let Ok(Some(names)) = matches.try_get_many::<String>(NAMES) {
            self.0.insert(Factor::Scenario, names.cloned().collect());
        }
        Ok(())
    }
}

/// The flag of one factor.
fn flag(factor: Factor, standing: &[String]) -> Arg {
    let row = factor.row();
    let groups: Vec<&str> = row.groups().into_iter().map(|(group, _)| group).collect();
    let groups = if groups.is_empty() { String::new() } else { format!(", or {}", groups.join(", ")) };
    let arg = Arg::new(row.name)
        .long(row.name)
        .value_name(row.value_name)
        .value_delimiter(',')
        .action(ArgAction::Append);
    let arg = match factor {
        Factor::Saturate => arg.num_args(0..=1).default_missing_value(Saturate::Relay.name()),
        Factor::Format => arg.alias("formats"),
        Factor::Compression => arg.alias("compressions"),
        _ => arg,
    };
    row.described(arg, &standing.join(","), &format!("Several, separated by commas{groups}."))
}
