//! The flags of a program that plays one cell.

use clap::{Arg, ArgMatches, Command, FromArgMatches, error::ErrorKind};

use crate::{Cell, Factor, Saturate, Side};

/// The flag with a whole cell, which flags of single factors override.
const CELL: &str = "cell";

/// The flag that names another's relay, whose settings are unknown.
const URL: &str = "url";

/// The scenario without its flag.
const NAME: &str = "scenario_name";

impl clap::Args for Cell {
    fn augment_args(command: Command) -> Command {
        let row = Factor::Scenario.row();
        let name = Arg::new(NAME).value_name(row.value_name).hide(true).conflicts_with(row.name);
        let command = flags().fold(command.arg(name), |command, factor| command.arg(flag(factor)));
        let whole = Arg::new(CELL).long(CELL).value_name("JSON").hide(true);
        command.arg(whole.value_parser(|text: &str| text.parse::<Cell>()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Cell::augment_args(command)
    }
}

impl FromArgMatches for Cell {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Cell, clap::Error> {
        let mut cell = Cell::default();
        cell.update_from_arg_matches(matches)?;
        Ok(cell)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(whole) = matches.get_one::<Cell>(CELL) {
            self.clone_from(whole);
        }
        for row in flags().map(Factor::row) {
            if let Some(text) = matches.get_one::<String>(row.name) {
                (row.read)(self, text).map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, why))?;
            }
        }
        if let Some(name) = matches.get_one::<String>(NAME) {
            self.scenario.clone_from(name);
        }
        if matches.try_contains_id(URL).unwrap_or(false) {
            self.relay = None;
        }
        Ok(())
    }
}

/// The factors that have a flag, in the order of help: what plays one cell knows one relay.
fn flags() -> impl Iterator<Item = Factor> {
    Factor::in_help().into_iter().filter(|factor| factor.row().side != Side::Program)
}

/// The flag of one factor.
fn flag(factor: Factor) -> Arg {
    let row = factor.row();
    let arg = Arg::new(row.name).long(row.name).value_name(row.value_name);
    let arg = arg.conflicts_with_all(row.conflicts).value_parser(move |text: &str| factor.normalised(text));
    let more = match factor {
        Factor::Format | Factor::Compression => "Without it a relay that listens already chooses.",
        _ if row.side == Side::Relay => "Only without --url.",
        _ => "",
    };
    let arg = row.described(arg, &(row.write)(&Cell::default()), more);
    match factor {
        Factor::Scenario => arg.required_unless_present_any([CELL, NAME]),
        Factor::Saturate => {
            arg.num_args(0..=1).require_equals(true).default_missing_value(Saturate::Relay.name())
        }
        _ => arg,
    }
}
