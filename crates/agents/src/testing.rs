//! Values for tests.

use crate::{
    agent::Policy,
    message::{Claim, Facts},
    spec::{Block, Identity, Play, Spec},
};

pub(crate) fn identity() -> Identity {
    let text = |text: &str| text.to_owned();
    Identity {
        program_sha256: text("program"),
        corpus_sha256: text("corpus"),
        dictionary_sha256: text("dictionary"),
    }
}

pub(crate) fn spec(of: u16) -> Spec {
    let (has_relay, corpus_file) = (false, None);
    Spec { run: "run".parse().unwrap(), nonce: 7, of, has_relay, identity: identity(), corpus_file }
}

pub(crate) fn claim() -> Claim {
    Claim { nonce: 9, spec_sha256: "spec".to_owned() }
}

pub(crate) fn facts() -> Facts {
    Facts { plan_sha256: "plan".to_owned(), corpus_sha256: "corpus".to_owned(), url: None }
}

pub(crate) fn policy() -> Policy {
    Policy {
        targets: vec!["ws://127.0.0.1:1/".parse().unwrap()],
        max_rate_per_s: None,
        starts_relays: false,
        identity: identity(),
    }
}

/// A block whose relay an agent starts.
pub(crate) fn relay_block() -> Block {
    let block = block();
    Block { play: Play { url: String::new(), starts_relay: true, ..block.play }, ..block }
}

pub(crate) fn block() -> Block {
    let text = |text: &str| text.to_owned();
    let play = Play {
        url: text("ws://127.0.0.1:1"),
        scenario: text("note-stream"),
        scenario_toml: Some(text("question = \"?\"")),
        answers: text("{}"),
        cell: [("format".to_owned(), "json".to_owned())].into(),
        comparable_with: vec![text("json"), text("capnp")],
        live: true,
        seed: 1,
        seconds: 2,
        block_id: text("1"),
        ..Play::default()
    };
    Block { round: 0, position: 0, play }
}
