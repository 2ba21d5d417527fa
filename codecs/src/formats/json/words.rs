//! Errors of serde_json, in the words of JSON and NIP-01: an object is no "map", and a message of
//! one line has no line 1.

use std::borrow::Cow;

use serde_json::error::Category;

/// Describes which value was found where, and which one was expected.
pub(super) fn describe(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let (line, byte) = (error.line(), error.column());
    let reason = said.strip_suffix(&format!(" at line {line} column {byte}")).unwrap_or(&said);
    let reason = found(reason);
    let reason = match reason.strip_prefix("EOF while parsing") {
        Some(inside) => format!("the JSON ends inside{inside}"),
        None if error.classify() == Category::Syntax => format!("not JSON: {reason}"),
        // Of a field, whose name stands before.
        None => reason.replacen(": EOF while parsing", ": the JSON ends inside", 1),
    };
    match (line, byte) {
        (0, _) => reason,
        (1, byte) => format!("{reason} (byte {byte})"),
        (line, byte) => format!("{reason} (line {line}, byte {byte})"),
    }
}

/// "kind: invalid type: floating point `1.5`, expected X" as "kind: 1.5, expected X".
fn found(reason: &str) -> Cow<'_, str> {
    const TELLING: [&str; 2] = ["invalid type: ", "invalid value: "];
    let place = TELLING.iter().find_map(|words| Some((reason.find(words)?, words.len())));
    let Some((start, length)) = place.filter(|(start, _)| !reason[..*start].contains('"')) else {
        return Cow::Borrowed(reason);
    };
    let (field, rest) = (&reason[..start], &reason[start + length..]);
    let Some((what, expected)) = rest.rsplit_once(", expected ") else { return Cow::Borrowed(reason) };
    let what = match what {
        "map" => "an object",
        "sequence" => "an array",
        "null" => "null",
        _ => what.split_once(' ').map_or(what, |(class, value)| match class {
            "string" => value,
            // integer, boolean, floating point
            _ => value.trim_start_matches("point ").trim_matches('`'),
        }),
    };
    let expected = match expected {
        "a sequence" => "an array",
        expected => expected,
    };
    Cow::Owned(format!("{field}{what}, expected {expected}"))
}
