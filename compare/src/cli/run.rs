//! `compare run`, in steps: each may end it with an exit code of its own.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context, Result, anyhow};
use cell::Factor;
use measure::{Exit, NOT_SATURATED, Status, utc};
use tempfile::TempDir;

use super::{folder::Folder, last, links, rates, stopped_code, try_file};
use crate::{
    args::Run,
    assemble,
    generator::Generator,
    git,
    grants::{ByRelay, asked},
    junit,
    matrix::{CellSpec, cells},
    metrics::Metrics,
    outline::outline,
    over_agents::Agents,
    pilot,
    plan::Profile,
    primary,
    rounds::{Measured, NoRounds, Rounds},
    selftest,
    this_machine::ThisMachine,
    usage::{Ended, note, refuse},
};
use program::UsageError;
use report::{
    Derived, FailOn,
    result::{Config, Git, ResultFile, Role, SelfTest},
};

/// Measures a matrix and writes a result folder.
pub(super) fn measure(flags: &Run, args: &[OsString]) -> Result<Exit> {
    let mut setup = Setup::new(flags)?;
    setup.ask_relays()?;
    setup.config.primary = primary::primary(&setup.cells, &flags.primary).map_err(UsageError)?;
    setup.size_blocks()?;
    if let Some(why) = setup.cannot_fail() {
        note(false, &why);
    }
    if flags.dry_run {
        program::print(&outline(&setup.cells, &setup.config))?;
        return Ok(Exit::Success);
    }
    let selftest = setup.selftest()?;
    let began = SystemTime::now();
    let header = assemble::header(args, setup.git.clone(), began, setup.config.clone());
    let header = ResultFile { selftest, ..header };
    let out = Folder::new(&flags.play.out, setup.name(began));
    setup.play_pilots(&header, &out)?;
    let foreign = setup.config.url.as_ref().zip(setup.answers.get(""));
    let agents = Agents::gather(flags, foreign, &setup.cells)?;
    let started = SystemTime::now();
    let config = setup.config.clone();
    let header = ResultFile { config, started_utc: utc::format(started), ..header };
    // Not in the result's folder, whose disk may be full.
    let own = TempDir::with_prefix("compare-").context("cannot make a folder for records")?;
    let ended = setup
        .play(header, &out, agents.as_ref(), own.path())
        .and_then(|measured| setup.publish(started, &out, &measured));
    // Lets the agents go.
    drop(agents);
    leave(own);
    ended
}

/// A run before its first block.
struct Setup<'a> {
    flags: &'a Run,
    /// This program's own file, which is every client.
    client: PathBuf,
    cells: Vec<CellSpec>,
    config: Config,
    git: Option<Git>,
    chooses_rate: bool,
    /// Where somebody scrapes it.
    metrics: Option<Metrics>,
    answers: ByRelay,
}

impl Setup<'_> {
    /// That no relay can fail the run in so few rounds; `None` where one can, and without others.
    fn cannot_fail(&self) -> Option<String> {
        let first = &self.cells.iter().find(|cell| cell.role == Role::Anchor)?.cell.relay_name;
        let others = primary::judged(&self.cells).filter(|cell| cell.cell.relay_name != *first).count();
        let fewest = report::rounds_to_fail(others, FailOn::together(&self.flags.fail_on).as_ref());
        let rounds = self.config.rounds;
        (others > 0 && rounds < fewest && self.flags.precision.is_none()).then(|| {
            format!(
                "No relay can fail this run: what {} may be chance. It takes --rounds {fewest} or more.",
                if rounds == 1 { "1 round shows".to_owned() } else { format!("{rounds} rounds show") }
            )
        })
    }
}

impl<'a> Setup<'a> {
    /// Refuses what cannot be measured as asked for.
    fn new(flags: &'a Run) -> Result<Setup<'a>> {
        let matrix = flags.matrix().map_err(UsageError)?;
        let mut cells = cells(&matrix)?;
        let scenarios = matrix.values(Factor::Scenario);
        // Loops that time ends have no bursts.
        let is_paced =
            matrix.values(Factor::Saturate).iter().any(|whom| whom == NOT_SATURATED || whom == "all");
        let with_bursts = if is_paced { scenarios } else { &[] };
        let seconds = flags.block_seconds(with_bursts);
        cells.retain(|cell| flags.measures(cell, seconds) && flags.over.can_play(cell));
        if !flags.utilisation.is_empty() {
            cells = pilot::at_shares(&cells, &flags.utilisation);
        }
        let git = git::current();
        let config = flags.config(scenarios.to_vec(), seconds);
        refuse(flags.refuses_metrics().map(str::to_owned))?;
        refuse(links::needs_own_relay(&config).map_err(UsageError)?)?;
        refuse(flags.over.refusal(flags.play.url.as_ref(), flags.play.events.skip_invalid))?;
        refuse(refusal(flags.profile, (with_bursts, seconds), git.as_ref()))?;
        let chooses_rate = flags.chooses_rate().map_err(|reason| UsageError(anyhow!(reason)))?;
        let client = measure::own_program().context("cannot find this program's own file")?;
        flags.play.check("run")?;
        try_file("--junit", flags.junit.as_deref())?;
        let metrics = flags.metrics_listen.as_deref().map(Metrics::serve).transpose()?;
        Ok(Setup { flags, client, cells, config, git, chooses_rate, metrics, answers: ByRelay::new() })
    }

    /// Leaves out what external relays do not grant.
    fn ask_relays(&mut self) -> Result<()> {
        if !self.config.relays.is_empty() {
            note(self.flags.quiet, "Asks each relay what it takes");
        }
        let asked = asked(&self.flags.play, &mut self.config.relays, &mut self.cells)?;
        (self.answers, self.config.foreign) = asked;
        Ok(())
    }

    /// Makes blocks as long as links and bursts ask for.
    fn size_blocks(&mut self) -> Result<()> {
        let (flags, seconds) = (self.flags, self.config.seconds);
        let note = |line: &str| note(flags.quiet, line);
        if let Some(reason) = links::size(flags.seconds, &mut self.config, &mut self.cells, note)? {
            return Err(Ended { exit: Exit::NotPossible, reason }.into());
        }
        if flags.is_longer(seconds) && self.config.seconds == seconds {
            note(&format!("Blocks of {seconds} s, so that each holds five bursts"));
        }
        Ok(())
    }

    /// The self-test for the report: the given one, or a quick one made now for the publish
    /// profile. One of another commit is told of, and never published.
    fn selftest(&self) -> Result<Option<SelfTest>> {
        let publish = self.flags.profile == Profile::Publish;
        let selftest = match &self.flags.selftest {
            Some(file) => Some(SelfTest::read(file).map_err(UsageError)?),
            None if publish => Some(self.test_now()?),
            None => None,
        };
        let difference = selftest.as_ref().and_then(|test| test.of_another_commit(self.git.as_ref()));
        if let Some(difference) = difference {
            if publish {
                let remedy = "make it anew (`compare selftest --out FILE`) or leave out --selftest";
                return Err(UsageError(anyhow!("{difference}; {remedy}")).into());
            }
            note(false, &format!("warning: {difference}"));
        }
        Ok(selftest)
    }

    fn test_now(&self) -> Result<SelfTest> {
        let options = selftest::Options { quick: true, ..selftest::Options::default() };
        let tell = |found: &SelfTest| {
            if let Some(oracle) = found.oracles.last() {
                note(self.flags.quiet, &oracle.line());
            }
        };
        selftest::run(&self.client, &options, tell).context("the instrument's own tests")
    }

    /// The name of the result's folder.
    fn name(&self, began: SystemTime) -> String {
        let commit = self.git.as_ref().map(|git| git.commit.get(..8).unwrap_or(&git.commit));
        format!("{}-{}-{}", utc::compact(began), commit.unwrap_or("nogit"), self.config.seed)
    }

    /// Has pilots choose the rate or the load of each cell, where they are asked to.
    fn play_pilots(&mut self, header: &ResultFile, out: &Folder<'_>) -> Result<()> {
        if !self.chooses_rate && self.flags.utilisation.is_empty() {
            return Ok(());
        }
        let chosen = rates::choose(self.flags.quiet, &mut self.config, &mut self.cells, header, out);
        if !matches!(chosen, Ok(true)) {
            out.tell_left();
        }
        if chosen? {
            return Ok(());
        }
        let reason = "interrupted in a pilot, so no block was measured".to_owned();
        Err(Ended { exit: Exit::Interrupted, reason }.into())
    }

    /// Plays the rounds, by agents or on this machine, whose clients write into `own`.
    fn play(
        &self,
        header: ResultFile,
        out: &Folder<'_>,
        agents: Option<&Agents>,
        own: &Path,
    ) -> Result<Measured> {
        let folder = out.made()?;
        // Records of agents are kept for people.
        let running = agents.map_or_else(|| own.to_owned(), |_| folder.join("running"));
        fs::create_dir_all(&running).with_context(|| format!("cannot make {}", running.display()))?;
        let machine = ThisMachine::new(&self.client, &self.config, self.answers.clone())?;
        let generator: &dyn Generator = match agents {
            Some(agents) => agents,
            None => &machine,
        };
        let (cells, quiet) = (&*self.cells, self.flags.quiet);
        let metrics = self.metrics.as_ref();
        let rounds = Rounds { generator, cells, running: &running, folder, quiet, metrics };
        let measured = rounds.play(header, self.flags.precision, self.flags.max_time);
        let measured = measured.map_err(|error| {
            if !error.is::<NoRounds>() {
                return error;
            }
            // Agents' records of the pilot stay.
            if fs::remove_dir(&running).and_then(|()| out.abandon()).is_err() {
                note(false, &format!("records of the pilot: {}", running.display()));
            }
            UsageError(error).into()
        })?;
        // Empty unless a record could not be read.
        let _ = fs::remove_dir(&running);
        out.ensure_measured(&measured)?;
        Ok(measured)
    }

    /// Writes the result and prints its table.
    fn publish(&self, started: SystemTime, out: &Folder<'_>, measured: &Measured) -> Result<Exit> {
        if env::current_exe().is_ok_and(|file| !file.exists()) {
            note(
                false,
                "the file of this program was replaced or removed: every block ran the build that was started",
            );
        }
        let result = &measured.result;
        let derived =
            out.publish(result, self.flags.wide, |folder| report::write_intervals(result, started, folder))?;
        if let Some(line) = last::since(result, out.made()?) {
            note(self.flags.quiet, &line);
        }
        let judged = report::between_relays(
            result,
            &derived.comparisons,
            FailOn::together(&self.flags.fail_on).as_ref(),
        );
        for worse in judged.iter().filter(|judged| judged.fails) {
            note(false, &format!("worse: {worse}"));
        }
        let junit = self.flags.junit.iter().try_for_each(|file| junit::write(result, &judged, file));
        let exit = match exit_code(measured, &derived) {
            Exit::Success if judged.iter().any(|judged| judged.fails) => Exit::Regression,
            exit => exit,
        };
        junit.map(|()| exit)
    }
}

/// Removes the folder for clients' records, unless one is left that could not be read or kept.
fn leave(running: TempDir) {
    if fs::read_dir(running.path()).is_ok_and(|mut files| files.next().is_some()) {
        program::report(&format!("records of clients: {}", running.keep().display()));
    }
}

/// Why a profile does not measure from this source tree, or with blocks of this length.
fn refusal(profile: Profile, (with_bursts, seconds): (&[String], u32), git: Option<&Git>) -> Option<String> {
    let unpublished = || git::publishable(git).err().filter(|_| profile == Profile::Publish);
    let too_short = |name: &String| workload::too_few_bursts(name, seconds);
    unpublished().or_else(|| with_bursts.iter().find_map(too_short))
}

/// The exit code of the worst outcome.
pub(super) fn exit_code(Measured { result, stopped }: &Measured, derived: &Derived) -> Exit {
    // The floor speaks no format, so its blocks fail nothing.
    let cells = || result.cells.iter().filter(|cell| cell.role != Role::Floor);
    let ended = |exit: &Exit| cells().flat_map(|cell| &cell.blocks).any(|block| exit.is(block.exit_code));
    if let Some(code) = stopped_code(*stopped) {
        return code;
    }
    if let Some(exit) = [Exit::Unbalanced, Exit::Incomplete].into_iter().find(ended) {
        return exit;
    }
    let unrecorded = cells().flat_map(|cell| &cell.blocks).any(|block| block.record.is_none());
    if unrecorded || result.status != Status::Complete {
        return Exit::Error;
    }
    let empty = cells().any(|cell| cell.blocks.iter().all(|block| block.usable().is_none()));
    let missed = derived.slos.iter().any(|one| !one.met);
    if empty {
        Exit::Invalid
    } else if missed {
        Exit::BoundMissed
    } else {
        Exit::Success
    }
}
