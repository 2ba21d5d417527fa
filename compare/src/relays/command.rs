//! How a relay is started, as `--relay` says it.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use cell::Factor;
use client_sim::own_relay::RELAY_ROLE;
use report::result::{FLOOR, RelayCommand};

/// These names alone stand for relays of our own.
const OWN: [&str; 2] = ["relay-sim", FLOOR];

/// What a command may name, each in braces.
const ADDRESS: &str = "{address}";
const PORT: &str = "{port}";
const DIR: &str = "{dir}";

/// Reads `NAME=COMMAND`, `relay-sim` or `floor`.
///
/// # Errors
/// Says what is missing, for the command line.
pub(crate) fn read(text: &str) -> Result<RelayCommand, String> {
    if OWN.contains(&text) {
        return Ok(RelayCommand { name: text.to_owned(), ..RelayCommand::default() });
    }
    let (name, command) = text.split_once('=').ok_or_else(|| {
        let own = OWN.join(" or ");
        format!("expected NAME=COMMAND, as in 'new=./relay --listen {ADDRESS}', or {own}")
    })?;
    if name.is_empty() {
        return Err("expected a name before the =".to_owned());
    }
    Factor::Relay.normalised(name)?;
    let words = shlex::split(command).ok_or("a quote of the command is not closed")?;
    if words.is_empty() {
        return Err(format!("expected a command after {name}="));
    }
    if ![ADDRESS, PORT].iter().any(|place| command.contains(place)) {
        return Err(format!(
            "the command has to say where to listen: {ADDRESS} stands for 127.0.0.1 with a free port, {PORT} for the port \
             alone (env PORT={PORT} ./relay, where it reads its environment)"
        ));
    }
    Ok(RelayCommand { name: name.to_owned(), command: command.to_owned(), ..RelayCommand::default() })
}

/// Says why these relays are not measured beside each other.
pub(crate) fn refusal(relays: &[RelayCommand]) -> Option<String> {
    let names = || relays.iter().map(|relay| &relay.name);
    let again = names().find(|name| names().filter(|other| other == name).count() > 1);
    let again = again.map(|name| format!("two relays are named {name}: each needs a name of its own"));
    let only_floor = || {
        relays.first().is_some_and(RelayCommand::is_floor).then(|| {
            format!(
                "--relay {FLOOR} does no Nostr work, so nothing is compared with it: name a relay before it"
            )
        })
    };
    again.or_else(only_floor)
}

/// The program of a relay, with its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

impl Words {
    /// Puts the address and the folder in their places. A program that is named by a path is looked
    /// for where compare was started.
    ///
    /// # Errors
    /// When this program's own file or folder is unknown.
    pub(super) fn new(relay: &RelayCommand, address: SocketAddr, dir: &Path) -> Result<Words> {
        if relay.command.is_empty() {
            let program = measure::own_program().context("cannot find this program's own file")?;
            let arguments = [RELAY_ROLE.to_owned(), "--listen".to_owned(), address.to_string()];
            return Ok(Words { program, arguments: arguments.to_vec() });
        }
        let words = shlex::split(&relay.command).ok_or_else(|| anyhow!("a quote is not closed"))?;
        let (port, dir) = (address.port().to_string(), dir.to_string_lossy());
        let put = |word: String| {
            word.replace(ADDRESS, &address.to_string()).replace(PORT, &port).replace(DIR, &dir)
        };
        let mut words = words.into_iter().map(put);
        let program = words.next().context("the command is empty")?;
        let program = if program.contains('/') {
            env::current_dir().context("cannot find the folder of this run")?.join(program)
        } else {
            program.into()
        };
        Ok(Words { program, arguments: words.collect() })
    }

    /// The program's file, where the command names it by a path.
    pub(super) fn file(&self) -> Option<&Path> {
        Some(&*self.program).filter(|file| file.is_absolute() && !file.starts_with("/proc/self"))
    }

    /// An argument that is a file where compare was started, and is looked for elsewhere.
    pub(super) fn relative_file(&self) -> Option<&str> {
        let is_file = |word: &&String| {
            let path = Path::new(word.rsplit('=').next().unwrap_or(word));
            path.is_relative() && path.exists()
        };
        self.arguments.iter().find(is_file).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_a_name_and_a_command_that_says_where_to_listen() {
        let found = read("old=./relay --config 'my a.conf' {address}").unwrap();
        assert_eq!((&*found.name, &*found.command), ("old", "./relay --config 'my a.conf' {address}"));
        assert_eq!(read("relay-sim").unwrap().command, "");
        assert!(read("floor").unwrap().is_floor() && !read("floor=./relay {port}").unwrap().is_floor());
        for (text, says) in [
            ("old", "expected NAME=COMMAND"),
            ("=./relay {port}", "expected a name"),
            ("a b=./relay {port}", "letters, digits"),
            ("a/b=./relay {port}", "letters, digits"),
            ("old=", "expected a command after old="),
            ("old='./relay {port}", "a quote of the command is not closed"),
            ("old=./relay --port 7777", "the command has to say where to listen"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn places_are_filled_within_words_and_nothing_is_read_by_a_shell() {
        let relay = read("a=env X={port} ./relay --store {dir}/db {address} '$HOME; rm'").unwrap();
        let words =
            Words::new(&relay, "127.0.0.1:4711".parse().unwrap(), Path::new("/tmp/with space")).unwrap();
        assert_eq!(words.program, Path::new("env"));
        let expected = ["X=4711", "./relay", "--store", "/tmp/with space/db", "127.0.0.1:4711", "$HOME; rm"];
        assert_eq!(words.arguments, expected);
        let relay = read("a=bin/relay {port}").unwrap();
        let words = Words::new(&relay, "127.0.0.1:1".parse().unwrap(), Path::new("/tmp")).unwrap();
        assert!(words.program.is_absolute() && words.program.ends_with("bin/relay"), "{words:?}");
    }

    #[test]
    fn a_file_that_is_named_from_another_folder_is_found() {
        let words = |argument: &str| Words {
            program: PathBuf::new(),
            arguments: vec!["--verbose".to_owned(), argument.to_owned()],
        };
        // Tests run in the folder of their package.
        for (argument, is_relative) in
            [("Cargo.toml", true), ("--config=Cargo.toml", true), ("/etc", false), ("none.conf", false)]
        {
            assert_eq!(words(argument).relative_file().is_some(), is_relative, "{argument}");
        }
    }
}
