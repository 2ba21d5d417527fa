//! Light readers (`decode_every`), and the runs that they cannot be part of.

use anyhow::bail;
use codecs::VerifyLevel;

use crate::args::Args;
use workload::Workload;

/// Refuses light readers where a message may hold several events, and where each event is to be
/// checked.
pub(crate) fn check(args: &Args, workload: &Workload) -> anyhow::Result<()> {
    let batches = args.cell.batching.is_some();
    let counts_alone = !batches && args.cell.client_verify == VerifyLevel::None;
    if counts_alone || workload.roles.iter().all(|role| role.decode_every.is_none()) {
        return Ok(());
    }
    if args.cell.saturate.is_some() {
        bail!(
            "--saturate has readers count most deliveries unread, which does not go with --batching or --client-verify: \
             ask for --saturate=clients, or leave them out"
        );
    }
    let (flag, why) = match batches {
        true => ("--batching", "a batch does not say how many events it holds"),
        false => ("--client-verify", "they do not see the events that they count"),
    };
    bail!("decode_every of light readers beside {flag}: {why}. Leave one of them out")
}
