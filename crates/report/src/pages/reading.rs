//! How to read a report, as list items: what each figure means and how a verdict comes about.

use cell::Factor;

use crate::{
    result::{RESULT_FILE, ResultFile},
    statistics::stats::{self, BAND},
    tables::{browser, limits},
    verdicts::family::correction,
    view::LoadView,
};

/// List items.
pub(crate) fn reading(result: &ResultFile, loads: &[LoadView<'_>]) -> String {
    if let Some(search) = &result.search {
        return limits::reading(&search.config);
    }
    let correction = correction(loads, result.config.rounds);
    if result.config.browser.is_some() {
        return browser::reading(&correction);
    }
    let only = |is: bool, text: &'static str| if is { text } else { "" };
    let batched = only(
        loads.iter().any(|load| load.varies(Factor::Batching)),
        "; batches with JSON in batches, and that with JSON event by event",
    );
    let over_links = only(
        loads.iter().any(LoadView::is_over_links),
        "- Over links: first, 50th (a first screen) and EOSE are medians from the instant at which a step was due, which \
         of a first step is before the handshake. IP bytes are those of packets with the headers of IP and TCP, \
         acknowledgements and what was sent again included.\n",
    );
    let light = only(
        loads.iter().any(LoadView::reads_lightly),
        "- Light readers: some clients decoded and compared every n-th delivery and counted the others (Populations), so \
         client CPU is no evidence. Response is of what they decoded.\n",
    );
    let floor = only(
        loads.iter().any(|load| load.floor().is_some()),
        " Relay CPU above the floor is a cell's less the floor's, divided by its reference's: in each round, where both \
         were above the floor in every round, and otherwise, without interval, over all blocks.",
    );
    let (band, significant) = (BAND * 100.0, stats::SIGNIFICANT);
    format!(
        "{over_links}{light}- An envelope is one event delivered to one subscriber (an acknowledged publish where nothing is \
         delivered). Envelope throughput is a rate over intervals of 100 ms (10 ms in short bursts): its median, and p1, \
         which one interval in a hundred stays below (p10, one in ten, where a cell has too few). In open-loop scenarios \
         the plan sets the rate, so it is a check, not a score.\n\
         - Sessions are timed from the instant each was due by plan to the end of its last step, and response and EOSE of a \
         later step from the EOSE before it.\n\
         - Quantiles are of all usable blocks' samples merged. [Brackets]: 10 to 99 samples lie beyond; –: fewer.\n\
         - Wire bytes are counted at the socket, both ways, with frames and masks, without handshakes. CPU is the CPU time \
         of the whole process (relay and clients apart) ÷ envelopes; the relay's user and system time is in ticks of 10 ms.\n\
         - First delivery is the relay's CPU for the first of four identical passes over the stored events less the median \
         of the others, before the clock starts; < is their spread. First deliveries %: encoded in the measured time. \
         Spliced %: sent with the publisher's bytes.\n\
         - floor is a relay without Nostr work that answers from a script. It is never ranked.{floor}\n\
         - × is a block divided by its nearest anchors, JSON without compression at every fourth place, as the \
         Hodges–Lehmann estimate over rounds. Where blocks have too few samples it is the ratio of the merged blocks.\n\
         - Verdicts compare like with like: a format with JSON under the same compression, JSON itself with no \
         compression{batched}. [low, high] is the 95 % interval of that estimate. A/A in a heading is that of JSON against \
         itself: smaller effects are not seen.\n\
         - better and worse: the interval lies wholly beyond ±{band:.0} % and Wilcoxon's signed-rank test agrees \
         (p ≤ {significant}; {correction}). same: it lies within ±{band:.0} %. inconclusive: anything else.\n\
         - unsteady: the latency depends on the block's length, by a trend of its seconds or a growing backlog. saturated: \
         relay or generator of the cell or of its reference used more than 90 % of its cores, so the latency is the length \
         of a queue. Bytes and CPU keep their verdicts.\n\
         - Invalid blocks stay in {RESULT_FILE} and leave the tables. Bytes and allocations need a balanced ledger alone, so \
         they stay when only a busy host or a late generator made a block invalid. Suspect blocks are used.\n"
    )
}
