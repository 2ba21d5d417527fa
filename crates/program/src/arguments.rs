//! Arguments of a program, and errors about them.

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{Command, Parser};

use crate::{command_line::withheld, interrupt, pages, version};

/// The first argument that requests manual pages and completions; the next one is their folder.
const PAGES: &str = "--generate";

/// A program's end because its arguments were rejected, or because help was requested.
#[derive(Debug)]
pub struct NotParsed {
    /// The text that was printed.
    pub said: String,
    /// The exit code: 0 for help, 2 for a mistake.
    pub code: ExitCode,
}

/// Reads the arguments, of which the first is the program's name. Help goes to standard output and
/// errors to standard error, without user and password of any address among the arguments. From
/// now on a write beyond the limit of file sizes fails, instead of ending the program.
///
/// # Errors
/// Help or a mistake, once that is printed.
pub fn parse<A: Parser>(args: &[OsString]) -> Result<A, NotParsed> {
    interrupt::outlive_size_limit();
    if let [program, flag, folder] = args
        && flag == PAGES
    {
        return Err(generated(A::command(), program.as_ref(), folder.as_ref()));
    }
    let parsed = version::stated(A::command()).try_get_matches_from(args);
    parsed
        .and_then(|matches| A::from_arg_matches(&matches).map_err(|error| error.format(&mut A::command())))
        .map_err(|error| {
            let text = error.to_string();
            let hidden = without_secrets(&text, args);
            // If nothing reads standard error, the exit code remains.
            match &hidden {
                Some(hidden) => crate::report(hidden.trim_end()),
                None => error.print().unwrap_or_default(),
            }
            let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            NotParsed { said: hidden.unwrap_or(text), code }
        })
}

/// The end of a program that wrote its manual pages and completions.
fn generated(command: Command, program: &Path, folder: &Path) -> NotParsed {
    match pages::generate(command.version(version::short()), program, folder) {
        Ok(()) => NotParsed { said: String::new(), code: ExitCode::SUCCESS },
        Err(error) => {
            let said = format!("error: cannot write pages into {}: {error}", folder.display());
            crate::report(&said);
            NotParsed { said, code: ExitCode::FAILURE }
        }
    }
}

/// The text with `***` for user and password of every address in it; `None` if it has no address.
fn without_secrets(text: &str, args: &[OsString]) -> Option<String> {
    let hidden = args.iter().fold(text.to_owned(), |text, arg| {
        // clap quotes the whole argument, or the value behind its `=`.
        let word = arg.to_string_lossy();
        let value = word.split_once('=').map_or("", |(_, value)| value);
        let text = text.replace(&*word, &withheld(&word, false));
        if value.is_empty() { text } else { text.replace(value, &withheld(value, false)) }
    });
    (hidden != text).then_some(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_a_stray_address_has_no_password() {
        let args = ["x", "ws://me:s3cret@relay/p", "ws"].map(OsString::from);
        let said = without_secrets("error: unexpected argument 'ws://me:s3cret@relay/p' found", &args);
        assert_eq!(said.unwrap(), "error: unexpected argument 'ws://***@relay/p' found");
        assert_eq!(without_secrets("error: unexpected argument 'ws' found", &args), None);
        let args = ["x", "--rate=ws://me:s3cret@relay"].map(OsString::from);
        let said = without_secrets("error: invalid value 'ws://me:s3cret@relay' for '--rate'", &args);
        assert_eq!(said.unwrap(), "error: invalid value 'ws://***@relay' for '--rate'");
    }
}
