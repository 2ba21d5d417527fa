//! Reads a file of steps: faults, and when they act.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use toml::{Spanned, Value};

use super::Fault;

/// Far more than a test needs, in bytes and in faults.
const MAX_BYTES: u64 = 1 << 20;
const MAX_FAULTS: usize = 1_000;

/// The file: steps in any order, which act together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    step: Vec<Step>,
}

/// Faults with the same keys.
#[derive(Debug, Deserialize)]
struct Step {
    faults: Vec<Spanned<String>>,
    /// The keys of `--fault`, as numbers or texts.
    #[serde(flatten)]
    keys: BTreeMap<String, Value>,
}

/// The faults of a file, each with the keys of its step.
///
/// # Errors
/// When it cannot be read or is no script: with the line, and what to write instead.
pub(crate) fn read(path: &Path) -> Result<Vec<Fault>> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        .with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(text.len() as u64 <= MAX_BYTES, "{} is longer than {MAX_BYTES} bytes", path.display());
    parse(&text).with_context(|| format!("{} is no script of faults", path.display()))
}

fn parse(text: &str) -> Result<Vec<Fault>> {
    let script: Script = toml::from_str(text)?;
    let mut faults = Vec::new();
    for Step { faults: named, keys } in script.step {
        let mut behind = String::new();
        for (key, value) in keys {
            match value {
                Value::String(value) => behind.push_str(&format!(":{key}={value}")),
                Value::Integer(value) => behind.push_str(&format!(":{key}={value}")),
                other => bail!("{key} = {other} is neither a whole number nor a text such as \"3s\""),
            }
        }
        for fault in named {
            let line = 1 + text[..fault.span().start].matches('\n').count();
            let fault = format!("{}{behind}", fault.into_inner());
            faults.push(fault.parse().with_context(|| format!("line {line}"))?);
            ensure!(faults.len() <= MAX_FAULTS, "line {line}: more than {MAX_FAULTS} faults");
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_give_their_keys_to_their_faults() {
        let script = r#"
            [[step]]
            connection = 1
            message = "2-3"
            faults = ["reset"]

            [[step]]
            after = "3s"
            for = "500ms"
            faults = ["no-eose=50%:seed=4", "late-ok=2s:connection=2"]
        "#;
        let faults: Vec<_> = parse(script).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "reset:connection=1:message=2-3",
                "no-eose=50%:after=3s:for=500ms:seed=4",
                "late-ok=2s:connection=2:after=3s:for=500ms"
            ]
        );
    }

    #[test]
    fn errors_name_the_line_and_what_to_write() {
        let many = format!("[[step]]\nfaults = [{}]", "'reset',".repeat(1_001));
        for (script, expected) in [
            (
                "[[step]]\nfaults = [\n'no-eose',\n'no-oese']",
                "line 4: unknown fault \"no-oese\" (did you mean no-eose?); known: ",
            ),
            ("[[step]]\nafter = '3'\nfaults = ['no-eose']", "after=3 is no time such as"),
            ("[[step]]\nafter = 1.5\nfaults = ['no-eose']", "after = 1.5 is neither"),
            ("[[step]]\ncolour = 'red'\nfaults = ['reset']", "\"colour\" is no key; known: connection"),
            ("[[step]]\nmessage = 1\nfaults = ['reset:message=2']", "\"message\" stands twice"),
            ("[[step]]\nafter = '1s'\nfaults = ['delay=1ms']", "takes no \"after\""),
            ("[[step]]", "missing field `faults`"),
            ("faults = []", "unknown field `faults`, expected `step`"),
            ("[[step]\n", "line 1"),
            (&many, "line 2: more than 1000 faults"),
        ] {
            let error = format!("{:#}", parse(script).unwrap_err());
            assert!(error.contains(expected), "{script}: {error}");
        }
    }

    #[test]
    fn the_example_of_the_document_is_a_script() {
        let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/test-relay.md"));
        let document = document.unwrap();
        let examples: Vec<_> = document.split("```toml\n").skip(1).collect();
        assert!(!examples.is_empty());
        for example in examples {
            let script = example.split("```").next().unwrap();
            assert!(!parse(script).unwrap().is_empty(), "{script}");
        }
    }

    #[test]
    fn a_file_without_end_is_read_up_to_a_bound() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
        let error = read(Path::new("/no/such/file.toml")).unwrap_err().to_string();
        assert!(error.contains("/no/such/file.toml"), "{error}");
    }
}
