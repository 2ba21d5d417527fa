//! The command line as results state it.

use std::{ffi::OsString, path::Path};

/// The flag whose value is an address even without a scheme.
const SERVER: &str = "--nats";

/// The flag whose value is `NAME=VALUE`, with a value that may be a secret.
const HEADER: &str = "--header";

/// The words of a command line, for published results: `***` replaces user and password of addresses and
/// values of header fields, and the program's folder is left out.
pub fn command_line(args: &[OsString]) -> Vec<String> {
    let program = args.first().map(|program| Path::new(program).file_name().unwrap_or_default());
    let mut words: Vec<_> = program.map(|name| name.to_string_lossy().into_owned()).into_iter().collect();
    for arg in args.iter().skip(1) {
        let word = arg.to_string_lossy();
        let (flag, value) = word.split_once('=').unwrap_or((&word, ""));
        let stated = match (words.last().map(String::as_str), flag) {
            (Some(HEADER), _) => name_alone(&word),
            (Some(SERVER), _) => withheld(&word, true),
            (_, HEADER) if flag != word => format!("{HEADER}={}", name_alone(value)),
            (_, SERVER) if flag != word => format!("{SERVER}={}", withheld(value, true)),
            _ => withheld(&word, false),
        };
        words.push(stated);
    }
    words
}

/// A header field with `***` for its value.
fn name_alone(header: &str) -> String {
    header.split_once('=').map_or_else(|| "***".to_owned(), |(name, _)| format!("{name}=***"))
}

/// A word with `***` for user and password of every address in it.
pub(crate) fn withheld(word: &str, is_address: bool) -> String {
    if !word.contains("://") {
        return if is_address { without_user(word) } else { word.to_owned() };
    }
    let mut parts = word.split("://");
    let scheme = parts.next().unwrap_or_default().to_owned();
    parts.fold(scheme, |text, part| text + "://" + &without_user(part))
}

/// The address after a scheme, with `***` for user and password.
fn without_user(address: &str) -> String {
    let (authority, path) = address.split_at(address.find(['/', '?', '#']).unwrap_or(address.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}{path}"),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        command_line(&args).join(" ")
    }

    #[test]
    fn no_password_reaches_a_result() {
        for address in [
            "nats://coordinator:s3cret@nats:4222",
            "tls://coordinator:s3cret@nats:4222",
            "nats://s3cret@nats:4222",
            "nats://coordinator:an@s3cret@nats:4222",
            "nats://coordinator:an,s3cret@nats:4222",
            "coordinator:s3cret@nats:4222",
        ] {
            let withheld = address.replace(address.rsplit_once('@').unwrap().0, "***");
            let withheld = match address.split_once("://") {
                Some((scheme, _)) => format!("{scheme}://{withheld}"),
                None => withheld,
            };
            for between in [" ", "="] {
                let found = stated(&format!("/bin/compare run --nats{between}{address} --agents=2"));
                assert_eq!(found, format!("compare run --nats{between}{withheld} --agents=2"));
            }
        }
        assert_eq!(
            stated("compare run --url ws://me:s3cret@relay/a@b"),
            "compare run --url ws://***@relay/a@b"
        );
        assert_eq!(stated("compare run --url=wss://me:s3cret@relay"), "compare run --url=wss://***@relay");
    }

    #[test]
    fn header_fields_are_stated_by_their_names() {
        assert_eq!(
            stated("compare run --header X-Key=s3cret --header=cookie=a=s3cret --url ws://relay"),
            "compare run --header X-Key=*** --header=cookie=*** --url ws://relay"
        );
        assert_eq!(
            stated("compare run --header s3cret --header= x"),
            "compare run --header *** --header=*** x"
        );
        assert_eq!(
            stated("compare run --headers a=b --out --header"),
            "compare run --headers a=b --out --header"
        );
    }

    #[test]
    fn a_record_does_not_say_where_the_program_lies() {
        assert_eq!(stated("/home/someone/bin/compare role:client"), "compare role:client");
        assert_eq!(stated("client-sim --corpus a/b.jsonl"), "client-sim --corpus a/b.jsonl");
        assert!(command_line(&[]).is_empty());
    }
}
