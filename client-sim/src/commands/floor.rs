//! The script of a floor relay (`relay-sim --floor`): its answer to each request of a plan, and its
//! deliveries.

use std::io::Write;

use anyhow::Context;
use codecs::{ClientMessage, Codec, Filter};
use relay_sim::floor::Script;
use tempfile::NamedTempFile;
use wire::Compression;

use crate::args::Args;
use workload::{Speaks, Workload};

/// A plan that a floor relay cannot serve.
#[derive(Debug, thiserror::Error)]
#[error("not possible with --floor: {0}")]
pub(crate) struct NotPossible(&'static str);

/// Writes the answer to each request of the plan and the deliveries of each publication to a file,
/// which dropping deletes.
///
/// # Errors
/// [`NotPossible`] when a floor relay cannot serve the plan; otherwise when the file cannot be
/// written.
pub(crate) fn script(args: &Args, workload: &Workload) -> anyhow::Result<NamedTempFile> {
    if args.cell.format != codecs::Format::JSON || args.cell.compression != Compression::None {
        return Err(NotPossible("it speaks JSON without compression").into());
    }
    let speaks_more = |speaks: &Speaks| {
        speaks.format.is_some_and(|format| format != codecs::Format::JSON)
            || speaks.compression.is_some_and(|compression| compression != Compression::None)
    };
    if workload.spoken().iter().any(speaks_more) {
        return Err(NotPossible("it speaks JSON without compression, and a population something else").into());
    }
    if workload.auth {
        return Err(NotPossible("it sends no challenge, which this scenario answers").into());
    }
    if !workload.turns.is_empty() {
        return Err(NotPossible("its script has no answers to a recording").into());
    }
    let codec = args.cell.format.codec(args.cell.implementation)?;
    let script = of_plan(workload, codec)?;
    let file = tempfile::Builder::new().prefix("client-sim-floor-").suffix(".json").tempfile();
    let mut file = file.context("cannot make a file in TMPDIR for --floor")?;
    file.write_all(&serde_json::to_vec(&script)?)
        .with_context(|| format!("cannot write {}", file.path().display()))?;
    Ok(file)
}

fn of_plan(workload: &Workload, codec: &dyn Codec) -> anyhow::Result<Script> {
    let mut script = Script::default();
    let mut buffer = Vec::new();
    for event in &workload.events[..workload.stored] {
        buffer.clear();
        codec.encode_event(event, &mut buffer)?;
        script.events.push(std::str::from_utf8(&buffer)?.to_owned());
    }
    for request in workload.sessions.iter().flat_map(|session| &session.steps).flatten() {
        let expected = request.expected.iter().map(|&place| place as usize).collect();
        script.answers.insert(text_of(&request.filter, codec)?, expected);
    }
    for one in &workload.live {
        let id = |publication: usize| {
            let event = workload.publications[publication].event as usize;
            codecs::hex::encode(&workload.events[event].id)
        };
        script.live.insert(text_of(&one.filter, codec)?, one.matches.ones().map(id).collect());
    }
    Ok(script)
}

/// The JSON text of a filter in a REQ.
fn text_of(filter: &Filter, codec: &dyn Codec) -> anyhow::Result<String> {
    let mut buffer = Vec::new();
    codec.encode_client(
        &ClientMessage::Req { subscription: "x".into(), filters: vec![filter.clone()] },
        &mut buffer,
    )?;
    let text = String::from_utf8(buffer)?;
    let inner = text.strip_prefix(r#"["REQ","x","#).and_then(|rest| rest.strip_suffix(']'));
    Ok(inner.context("a REQ begins with its name")?.to_owned())
}
