//! Counts instructions in user space by Valgrind, instead of timing: a cost that repeats, of relay
//! and clients apart.
//!
//! A program plays in one process what is counted (`rehearsals::instructions`) under callgrind. Every
//! count is made twice, by two processes, and the difference is stated.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use measure::{Exit, SCHEMA_VERSION, Tool};
use serde::Deserialize;

use program::UsageError;
use report::result::{Conditions, Instructions, Row};

/// The role in which a program plays what is counted.
const COUNT_ROLE: &str = "role:count";

/// The functions by which a program says who works (`crates/rehearsals/src/instructions/probe.rs`).
const RELAY_SIDE: &str = "instructions::probe::relay_side";
const CLIENT_SIDE: &str = "instructions::probe::client_side";
const SECTION_ENDS: &str = "instructions::probe::section_ends";

/// Counts are missing because Valgrind is.
const NOT_INSTALLED: &str = "instructions are counted by Valgrind, which is not installed: `apt install valgrind`, or your system's package";

/// The program that is counted.
#[derive(Debug)]
pub(crate) struct Program {
    file: PathBuf,
    valgrind: String,
}

/// First output of the program: its build.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct Build {
    rustc: Option<String>,
    optimised: bool,
}

/// Output of the program when a section ends.
#[derive(Debug, Deserialize)]
struct Section {
    section: Option<String>,
    units: u64,
}

/// Instructions of one section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    relay: u64,
    client: u64,
}

impl Program {
    /// A program that has the role `role:count`.
    ///
    /// # Errors
    /// Without Valgrind.
    pub(crate) fn new(file: PathBuf) -> Result<Program> {
        let asked = Command::new("valgrind").arg("--version").output();
        let output = match asked {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(UsageError(anyhow!(NOT_INSTALLED)).into());
            }
            asked => asked.context("cannot start valgrind")?,
        };
        ensure!(output.status.success(), "valgrind --version ended with {}", output.status);
        let valgrind = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        // Valgrind would take the name that a process has for its own program for itself.
        let file = match file.strip_prefix("/proc/self") {
            Ok(rest) => Path::new("/proc").join(std::process::id().to_string()).join(rest),
            Err(_) => file,
        };
        Ok(Program { file, valgrind })
    }

    /// Conditions that change the counts of the same source.
    fn conditions(&self, build: Build) -> Result<Conditions> {
        let ldd = Command::new("ldd").arg("--version").output().context("cannot start ldd")?;
        let text = String::from_utf8_lossy(&ldd.stdout);
        let libc = text.lines().next().unwrap_or_default().trim().to_owned();
        #[cfg(target_arch = "x86_64")]
        let vectors =
            if std::arch::is_x86_feature_detected!("avx2") { " with AVX2" } else { " without AVX2" };
        #[cfg(not(target_arch = "x86_64"))]
        let vectors = "";
        Ok(Conditions {
            rustc: build.rustc,
            optimised: build.optimised,
            valgrind: self.valgrind.clone(),
            libc,
            processor: format!("{}{vectors}", std::env::consts::ARCH),
        })
    }

    /// Counts what these arguments of `role:count` name twice, in two processes at one time: nothing
    /// disturbs a count.
    ///
    /// # Errors
    /// When the program fails, or its counts cannot be read.
    pub(crate) fn count(&self, args: &[String]) -> Result<Instructions> {
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| self.count_once(args, |_| ()));
            let tell = |section: &str| program::report(&format!("counted {section}"));
            (self.count_once(args, tell), second.join())
        });
        let second = second.map_err(|_| anyhow::anyhow!("the second count panicked"))??;
        let ((build, first), (_, second)) = (first?, second);
        ensure!(first.len() == second.len(), "two counts of the same have different sections");
        let rows = first.iter().zip(&second).map(|(first, second)| row(first, second));
        Ok(Instructions {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            conditions: self.conditions(build)?,
            rows: rows.collect::<Result<_>>()?,
        })
    }

    fn count_once(&self, args: &[String], tell: impl Fn(&str)) -> Result<(Build, Vec<(Section, Cost)>)> {
        let folder = tempfile::TempDir::with_prefix("compare-").context("cannot make a folder for counts")?;
        let out = folder.path().join("out");
        let mut child = Command::new("valgrind")
            .args(["--tool=callgrind", "--quiet", "--compress-strings=no", "--compress-pos=no"])
            .args(["--dump-line=no", "--dump-instr=no", "--combine-dumps=no"])
            .arg(format!("--dump-before=*{SECTION_ENDS}*"))
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(&self.file)
            .arg(COUNT_ROLE)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start valgrind")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut stdout, mut stderr) = (stdout.context("was asked for")?, stderr.context("was asked for")?);
        let complaints = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text)
        });
        let (mut build, mut found) = (Build::default(), Vec::new());
        let mut read = || -> Result<()> {
            for (n, line) in BufReader::new(&mut stdout).lines().enumerate() {
                if n == 0 {
                    build = serde_json::from_str(&line?).context("not what built the program")?;
                    continue;
                }
                let section: Section = serde_json::from_str(&line?).context("not a section")?;
                let file = out.with_added_extension(n.to_string());
                if let Some(name) = &section.section {
                    tell(name);
                    found.push((section, read_cost(&file)?));
                }
                // A file of each section is megabytes.
                fs::remove_file(&file).with_context(|| format!("valgrind wrote no {}", file.display()))?;
            }
            Ok(())
        };
        let read = read();
        if read.is_err() {
            child.kill().ok();
        }
        let status = child.wait().context("cannot wait for valgrind")?;
        let complaints = complaints.join().ok().and_then(Result::ok).unwrap_or_default();
        if !status.success() && read.is_ok() {
            let (file, complaints) = (self.file.display(), complaints.trim());
            let error = anyhow!("{file} {COUNT_ROLE} under valgrind ended with {status}: {complaints}");
            return Err(if Exit::Usage.is(status.code()) { UsageError(error).into() } else { error });
        }
        read.with_context(|| complaints.trim().to_owned())?;
        Ok((build, found))
    }
}

fn row((section, first): &(Section, Cost), (_, second): &(Section, Cost)) -> Result<Row> {
    let name = section.section.clone().unwrap_or_default();
    ensure!(section.units > 0, "{name}: counted for nothing");
    if *first == Cost::default() {
        bail!("{name}: no instruction of relay or clients was found; does the program have its symbols?");
    }
    let per = |count: u64| count as f64 / section.units as f64;
    let differ = |a: u64, b: u64| a.abs_diff(b) as f64 / a.max(b).max(1) as f64;
    let repeat_difference = differ(first.relay, second.relay).max(differ(first.client, second.client));
    Ok(Row {
        name,
        units: section.units,
        relay: per(first.relay),
        client: per(first.client),
        repeat_difference,
    })
}

fn read_cost(file: &Path) -> Result<Cost> {
    let text = fs::File::open(file).with_context(|| format!("valgrind wrote no {}", file.display()))?;
    cost(BufReader::new(text)).with_context(|| file.display().to_string())
}

/// The instructions below both sides in a file of callgrind: the inclusive costs of the calls of
/// each, which the file has behind every `calls=` line (Valgrind manual, "Callgrind Format
/// Specification").
fn cost(text: impl BufRead) -> Result<Cost> {
    let mut found = Cost::default();
    let (mut called, mut inclusive) = (String::new(), false);
    for line in text.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(name) = line.strip_prefix("cfn=") {
            name.clone_into(&mut called);
        } else if line.starts_with("calls=") {
            inclusive = true;
        } else if std::mem::take(&mut inclusive) {
            let sum = match () {
                () if called.contains(RELAY_SIDE) => &mut found.relay,
                () if called.contains(CLIENT_SIDE) => &mut found.client,
                () => continue,
            };
            let count = line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
            *sum += count.with_context(|| format!("not the cost of a call: {line:?}"))?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_side_is_what_its_calls_cost_with_all_below_them() {
        let text = "version: 1\npositions: line\nevents: Ir\n\nfn=main\n0 10\ncfn=rehearsals::instructions::probe::relay_side\n\
                    calls=3 0\n0 700\ncfn=rehearsals::instructions::probe::client_side\ncalls=1 0\n0 50\n\n\
                    fn=rehearsals::instructions::probe::relay_side\n0 9\ncfn=work\ncalls=3 0\n0 691\n\n\
                    fn=other\n0 1\ncfn=rehearsals::instructions::probe::relay_side\ncalls=1 0\n0 30\n";
        assert_eq!(cost(text.as_bytes()).unwrap(), Cost { relay: 730, client: 50 });
    }

    #[test]
    fn a_damaged_count_is_an_error() {
        let text = "cfn=x::instructions::probe::relay_side\ncalls=3 0\n0 many\n";
        let error = cost(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "not the cost of a call: \"0 many\"");
    }

    #[test]
    fn a_row_states_the_larger_difference_of_both_sides() {
        let section = || Section { section: Some("x".to_owned()), units: 10 };
        let (first, second) = (Cost { relay: 1_000, client: 500 }, Cost { relay: 1_000, client: 400 });
        let found = row(&(section(), first), &(section(), second)).unwrap();
        assert_eq!((found.relay, found.client, found.repeat_difference), (100.0, 50.0, 0.2));
        assert!(row(&(section(), Cost::default()), &(section(), second)).is_err(), "no symbols");
    }
}
