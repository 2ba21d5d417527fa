//! Manual pages and completions, from the definitions that parse the arguments.

use std::{fs, io, path::Path};

use clap::Command;
use clap_complete::{
    Shell::{Bash, Fish, Zsh},
    generate_to,
};

/// Where shells look for completions below `/usr/local/share` or `~/.local/share`.
const COMPLETIONS: [(clap_complete::Shell, &str); 3] =
    [(Bash, "bash-completion/completions"), (Zsh, "zsh/site-functions"), (Fish, "fish/vendor_completions.d")];

/// Writes both below a folder laid out as `/usr/share`, for the program of this name.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn generate(command: Command, program: &Path, folder: &Path) -> io::Result<()> {
    let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut command =
        with_paragraphs(with_long_help(command)).bin_name(name.clone()).display_name(name.clone());
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command.clone().disable_help_subcommand(true), pages)?;
    for (shell, place) in COMPLETIONS {
        let place = folder.join(place);
        fs::create_dir_all(&place)?;
        generate_to(shell, &mut command, &name, place)?;
    }
    Ok(())
}

/// The command with a long help for every argument: else a page leaves out the help of rare ones.
fn with_long_help(command: Command) -> Command {
    let command = command.mut_args(|arg| match (arg.get_long_help(), arg.get_help().cloned()) {
        (None, Some(help)) => arg.long_help(help),
        _ => arg,
    });
    command.mut_subcommands(with_long_help)
}

/// The command with a blank line after each list in its closing text. A page fills lines that are
/// not indented, so a list would swallow the next one.
fn with_paragraphs(command: Command) -> Command {
    let Some(text) = command.get_after_long_help().map(ToString::to_string) else { return command };
    let mut is_list = false;
    let lines = text.lines().map(|line| {
        let ends_list = std::mem::replace(&mut is_list, line.starts_with(' ')) && !line.starts_with(' ');
        let gap = if ends_list && !line.is_empty() { "\n" } else { "" };
        format!("{gap}{line}\n")
    });
    let text: String = lines.collect();
    command.after_long_help(text)
}
