//! Light readers (`decode_every`), and the runs that they cannot be part of.

use anyhow::ensure;
use codecs::VerifyLevel;

use crate::args::Args;
use workload::Workload;

/// Refuses light readers where a message may hold several events, and where each event is to be
/// checked.
pub(crate) fn check(args: &Args, workload: &Workload) -> anyhow::Result<()> {
    let light = workload.roles.iter().any(|role| role.decode_every.is_some());
    ensure!(
        !light
            || args.cell.saturate.is_none()
            || (args.cell.batching.is_none() && args.cell.client_verify == VerifyLevel::None),
        "--saturate has readers count most deliveries unread, which does not go with --batching or --client-verify: ask \
         for --saturate=clients, or leave them out"
    );
    ensure!(
        !light || args.cell.batching.is_none(),
        "decode_every of light readers beside --batching: a batch does not say how many events it holds. Leave one of \
         them out"
    );
    ensure!(
        !light || args.cell.client_verify == VerifyLevel::None,
        "decode_every of light readers beside --client-verify: they do not see the events that they count. Leave one of \
         them out"
    );
    Ok(())
}
