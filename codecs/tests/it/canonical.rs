//! An event that a relay may pass on as it came is one that the encoder would write. `properties.rs`
//! asks it of any bytes, too.

use codecs::{ClientMessage, Format, OneForm};

use crate::common::{self, Subject, subjects};

/// The part of a message that may be passed on.
fn found<'a>(subject: &Subject, message: &'a [u8]) -> Option<&'a [u8]> {
    match subject.codec.decode_client(message) {
        Ok(ClientMessage::Event(event)) => subject.format.canonical_event(subject.codec, message, &event),
        _ => None,
    }
}

const KEY: &str = "0707070707070707070707070707070707070707070707070707070707070707";

/// Texts of one event: each is read, and only the first is what encoders write.
#[test]
fn other_forms_of_json_are_not_canonical() {
    let usual = format!(
        r#"["EVENT",{{"id":"{KEY}","pubkey":"{KEY}","created_at":10,"kind":1,"tags":[["t","a/b"],[]],"content":"x\ny","sig":"{KEY}{KEY}"}}]"#
    );
    let tail = format!(r#","sig":"{KEY}{KEY}""#);
    let forms = [
        usual.replace("[],", "[], ").replace("[[", "[ ["),
        usual.replace(r#"["EVENT","#, r#"["EVENT", "#),
        format!("{usual} "),
        usual.replace("}]", ",\"seen\":1}]"),
        usual.replace("a/b", "a\\/b"),
        usual.replace("x\\n", "\\u0078\\n"),
        usual.replace("x\\n", "x\\u000a"),
        usual.replace(r#""kind":1"#, r#""kind":1 "#),
        usual.replace(r#""id":"0"#, r#""id":"\u0030"#),
        usual.replace(r#""sig""#, r#""\u0073ig""#),
        // Other orders, of the same length.
        usual.replace(&tail, "").replace(r#","created_at""#, &format!(r#"{tail},"created_at""#)),
        usual.replace(r#""created_at":10,"kind":1"#, r#""kind":1,"created_at":10"#),
        usual.replace(
            r#""tags":[["t","a/b"],[]],"content":"x\ny""#,
            r#""content":"x\ny","tags":[["t","a/b"],[]]"#,
        ),
    ];
    let control = usual.replace("x\\ny", "\\u000b");
    for subject in subjects().iter().filter(|subject| subject.format == Format::JSON) {
        assert!(found(subject, usual.as_bytes()).is_some(), "{}", subject.label);
        let read =
            |text: &str| subject.read_client(text.as_bytes()).map_err(|error| format!("{error}: {text}"));
        for form in &forms {
            assert_eq!(read(form).unwrap(), read(&usual).unwrap(), "{}", subject.label);
            assert_eq!(found(subject, form.as_bytes()), None, "{}: {form}", subject.label);
        }
        // Encoders write lower case; nobody looks which it is.
        for form in [&control, &control.replace("000b", "000B")] {
            assert!(read(form).is_ok());
            assert_eq!(found(subject, form.as_bytes()), None, "{}: {form}", subject.label);
        }
    }
}

/// JSON has two forms of the sample, with a control character.
#[test]
fn only_a_clients_event_has_a_canonical_part() {
    for subject in subjects() {
        for message in common::client_messages() {
            let has_one = matches!(&message, ClientMessage::Event(_))
                && subject.format.spec().one_form != OneForm::Nothing;
            let bytes = subject.client(&message).unwrap();
            assert_eq!(found(&subject, &bytes).is_some(), has_one, "{message:?}");
        }
    }
}
