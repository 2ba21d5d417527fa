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
    let batches = |load: &LoadView<'_>| load.varies(Factor::Batching);
    let batched = if loads.iter().any(batches) {
        "; batches with JSON in batches, and that with JSON event by event"
    } else {
        ""
    };
    let over_links = if loads.iter().any(LoadView::is_over_links) {
        "- Over links: first, 50th (a first screen) and EOSE are medians from the instant at which a step was due, which \
             of a first step is before the handshake; handshake is that of TCP and WebSocket. IP bytes are those of packets \
             with the headers of IP and TCP, acknowledgements and what was sent again included. Queueing is what packets to \
             users waited before their link carried them.\n"
    } else {
        ""
    };
    let light = if loads.iter().any(LoadView::reads_lightly) {
        "- Light readers: some clients decoded and compared every n-th delivery and counted the others (Populations), so \
             client CPU is no evidence and has neither number nor verdict. Response is of what they decoded.\n"
    } else {
        ""
    };
    let floor = if loads.iter().any(|load| load.floor().is_some()) {
        " Relay CPU above the floor is a cell's less the floor's, by which it is divided as by its reference's: in \
             each round, where both were above the floor in every round, and otherwise, without interval, over all blocks. \
             It has no verdict: relay CPU has one of the same sign."
    } else {
        ""
    };
    format!(
        "{over_links}{light}- An envelope is one event delivered to one subscriber (an acknowledged publish where nothing is delivered). \
         Envelope throughput is the envelopes that came in each interval (100 ms, 10 ms where sessions alone make \
         short bursts, longer where they are rare) as a rate: its median, and p1, which one interval in a hundred stays below \
         (p10, one in ten, where a cell has too few intervals for p1). \
         Intervals that begin or end outside of the time with work outstanding are left out. In open-loop scenarios the plan \
         sets the rate, so it is a check, not a score; the quotient of all envelopes and that time is in derived.json \
         (of a burst it mirrors p99).\n\
         - Sessions are timed from the instant each was due by plan to the end of its last step, steps that depend on an \
         answer included. Response and EOSE of a later step count from the EOSE before it, because no client could send it sooner.\n\
         - Quantiles are of all usable blocks' samples merged. [Brackets]: 10 to 99 samples lie beyond; –: fewer.\n\
         - Wire bytes are counted at the socket, both ways, with frames and masks, without handshakes. On loopback part \
         of the receiver's kernel work is charged to the sender.\n\
         - CPU is the CPU time of the whole process (relay and clients apart) ÷ envelopes, including signature \
         verification, matching and the network stack.\n\
         - User and system divide the same CPU time as the kernel does, in ticks of 10 ms for the relay. Handshake bytes \
         are of one connection, both ways.\n\
         - Before the clock starts every stored event that the plan asks for is sent in four identical passes. First \
         delivery is the relay's CPU for the first pass less the median of the others, for each event; < is their spread, which \
         it does not exceed. First deliveries %: deliveries in the measured time whose event was encoded for them. Spliced %: \
         those with the publisher's bytes.\n\
         - floor is a relay without Nostr work that answers from a script: the cost of generator and sockets alone. It is \
         never ranked.{floor}\n\
         - Peak memory is the median over blocks of the most that the relay's process had, its events included.\n\
         - × is a block divided by its nearest anchors, JSON without compression at every fourth place, as the \
         Hodges–Lehmann estimate over rounds: the median of the means of all pairs of rounds. Where single blocks have too \
         few samples it is the ratio of the merged blocks.\n\
         - Verdicts compare like with like: a format with JSON under the same compression, JSON itself with no \
         compression{batched}. [low, high] is the 95 % interval of that estimate: the shifts that the signed-rank test does not \
         reject. A/A in a heading is that of JSON against itself: smaller effects are not seen.\n\
         - better and worse: the interval lies wholly beyond ±{:.0} % and Wilcoxon's signed-rank test agrees \
         (p ≤ {}; {correction}). same: the interval lies within ±{:.0} %. inconclusive: anything else.\n\
         - unsteady: the medians of single seconds, each over all rounds, have a trend (Mann–Kendall, p ≤ 0.05, and beyond \
         ±2 %), or those of a block's halves differ by 5 %, or the backlog grows, so the latency depends on the block's length. Bytes \
         and CPU keep their verdicts.\n\
         - saturated: over all usable blocks the relay or the generator of the cell or of its reference used more than \
         90 % of the time of its cores, so the latency is the length of a queue. Bytes and CPU keep their verdicts.\n\
         - Invalid blocks stay in {}, leave the tables, and are counted above. Suspect blocks are \
         used. Bytes and allocations need a balanced ledger alone, so they stay when only a busy host or a late generator made \
         a block invalid.\n",
        BAND * 100.0,
        stats::SIGNIFICANT,
        BAND * 100.0,
        RESULT_FILE
    )
}
