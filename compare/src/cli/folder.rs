//! The folder of a result: made with the first thing that is kept, and never in the way of the
//! table.

use std::{
    cell::{Cell, OnceCell},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{show, stopped_code, write_reports};
use crate::{
    rounds::Measured,
    usage::{Ended, NOTHING_MEASURED},
};
use measure::Exit;
use program::UsageError;
use report::{
    Derived, Report,
    result::{ResultFile, unfinished},
};

/// Folders of one name, for results that began in the same second.
const NAMESAKES: u32 = 100;

/// Where a result goes.
#[derive(Debug)]
pub(crate) struct Folder<'a> {
    parent: &'a Path,
    name: String,
    made: OnceCell<PathBuf>,
    /// Whether it was said that what is measured cannot be kept.
    said: Cell<bool>,
}

impl<'a> Folder<'a> {
    pub(crate) fn new(parent: &'a Path, name: String) -> Folder<'a> {
        Folder { parent, name, made: OnceCell::new(), said: Cell::new(false) }
    }

    /// Tries to write where the folder is, or will be made, before anything is measured for it.
    /// Leaves nothing behind.
    pub(crate) fn try_out(out: &Path) -> Result<()> {
        measure::try_folder(out).context("--out").map_err(UsageError)?;
        Ok(())
    }

    /// The folder, which is there from now on.
    pub(crate) fn made(&self) -> Result<&Path> {
        match self.made.get() {
            Some(folder) => Ok(folder),
            None => {
                let made = self.make()?;
                Ok(self.made.get_or_init(|| made))
            }
        }
    }

    fn make(&self) -> Result<PathBuf> {
        let cannot = |folder: &Path| format!("cannot make {}", folder.display());
        fs::create_dir_all(self.parent).with_context(|| cannot(self.parent))?;
        let mut folder = self.parent.join(&self.name);
        for other in 2..NAMESAKES {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    folder = self.parent.join(format!("{}.{other}", self.name));
                }
                made => return made.with_context(|| cannot(&folder)).map(|()| folder),
            }
        }
        anyhow::bail!("{} has too many results of one second", self.parent.display())
    }

    /// Removes the folder of a command that measured nothing; one with other files stays.
    pub(crate) fn abandon(&self) -> io::Result<()> {
        let Some(folder) = self.made.get() else { return Ok(()) };
        unfinished::remove(folder);
        fs::remove_dir(folder)
    }

    /// Removes the folder of a plan that left no record, and says so.
    pub(crate) fn ensure_measured(&self, measured: &Measured) -> Result<()> {
        let mut blocks = measured.result.cells.iter().flat_map(|cell| &cell.blocks);
        if blocks.any(|block| block.record.is_some()) {
            return Ok(());
        }
        // One with an unreadable record stays.
        let _ = self.abandon();
        let exit = stopped_code(measured.stopped).unwrap_or(Exit::Error);
        Err(Ended { exit, reason: NOTHING_MEASURED.to_owned() }.into())
    }

    /// Keeps what was measured so far. What cannot be written is said once, and ends nothing.
    pub(crate) fn keep(&self, so_far: &ResultFile) {
        let kept = self.made().and_then(|folder| unfinished::state(folder, so_far));
        if let Err(error) = kept
            && !self.said.replace(true)
        {
            program::report(&format!("warning: what is measured cannot be kept: {error:#}"));
        }
    }

    /// Says what `compare report` reads of a command that did not end well.
    pub(crate) fn tell_left(&self) {
        if let Some(folder) = self.made.get() {
            program::report(&format!("compare report {} shows what was measured", folder.display()));
        }
    }

    /// Writes a result and what follows from it, `more` in between, and prints its table whatever
    /// the disk says.
    pub(crate) fn publish(
        &self,
        result: &ResultFile,
        wide: bool,
        more: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Derived> {
        let stored = self.made().and_then(|folder| {
            result.write(folder)?;
            unfinished::remove(folder);
            more(folder)?;
            Ok(folder)
        });
        let report = Report::from_result(result);
        let written = stored.and_then(|folder| write_reports(&report, result, folder));
        // The files whatever becomes of stdout.
        let shown = show(&report, wide);
        let written = written.with_context(|| match self.made.get() {
            Some(folder) => format!(
                "some files are missing; `compare report {}` makes them of what was measured",
                folder.display()
            ),
            None => "what was measured is above alone".to_owned(),
        });
        written?;
        shown?;
        program::report(&format!("\nwritten to {}", self.made()?.display()));
        Ok(report.derived)
    }
}
