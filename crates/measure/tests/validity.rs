//! Which block is left out is independent of its cell: cells of different cost are
//! simulated under the same disturbances of the host, and judged.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "durations are positive and fit; blocks are few"
)]

use measure::{Counts, Latency, Rate, Signals, ValidityClass};

const SECOND: u64 = 1_000_000_000;
const BLOCK_NS: u64 = 10 * SECOND;
const PER_SECOND: u64 = 200;
const BLOCKS: u64 = 400;

/// What encoding and decoding of one event cost the generator in each cell, in nanoseconds.
const CELLS: [u64; 4] = [20_000, 80_000, 250_000, 600_000];

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), which needs no dependency.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in 0..1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Stretches in which the host gives the generator's core to others, in order and apart.
fn disturbance(seed: u64) -> Vec<(u64, u64)> {
    let mut random = Random(seed);
    // From 1 ms to 300 ms, and a third of the time at most.
    let length_ns = (1e6 * 300_f64.powf(random.share())) as u64;
    let gap_ns = (length_ns as f64 * (2.0 + 200.0 * random.share().powi(3))) as u64;
    let mut stretches = Vec::new();
    let mut at = (gap_ns as f64 * random.share()) as u64;
    while at + length_ns < BLOCK_NS {
        stretches.push((at, at + length_ns));
        at += length_ns + (2.0 * gap_ns as f64 * random.share()) as u64;
    }
    stretches
}

/// A block of the cell as it is measured: one core that serves events in the order in which they
/// are due, and stands still in each stretch.
fn play(cpu_ns: u64, stretches: &[(u64, u64)]) -> Signals {
    let mut lag = Latency::new();
    let (mut free_ns, mut wait_ns, mut next) = (0, 0, 0);
    let events = PER_SECOND * BLOCK_NS / SECOND;
    for event in 0..events {
        let due = event * SECOND / PER_SECOND;
        let mut now = due.max(free_ns);
        while next < stretches.len() && stretches[next].1 <= now {
            next += 1;
        }
        let mut left = cpu_ns;
        let mut sent = None;
        loop {
            let (from, to) = stretches.get(next).copied().unwrap_or((u64::MAX, u64::MAX));
            if now >= from {
                // Runnable since it was due, or since the stretch began.
                wait_ns += to - now;
                now = to;
                next += 1;
                continue;
            }
            sent.get_or_insert(now);
            let runs = left.min(from - now);
            (now, left) = (now + runs, left - runs);
            if left == 0 {
                break;
            }
        }
        free_ns = now;
        lag.record(sent.expect("it ran") - due);
    }
    let stolen: u64 = stretches.iter().map(|(from, to)| to - from).sum();
    Signals {
        counts: Counts {
            planned: events,
            acked: events,
            deliveries_expected: events,
            deliveries: events,
            ..Counts::default()
        },
        rate_per_second: Some(Rate { offered: PER_SECOND as f64, sent: PER_SECOND as f64 }),
        send_lag_ns_p99: lag.quantile_ns(0.99),
        burst_sends: 1,
        generator_cpu_ns: events * cpu_ns,
        generator_wait_ns: Some(wait_ns),
        generator_cores: 1,
        elapsed_ns: BLOCK_NS,
        active_ns: BLOCK_NS,
        cpu_pressure_percent: Some(100.0 * stolen as f64 / BLOCK_NS as f64),
        ..Signals::default()
    }
}

fn left_out(block: &Signals) -> bool {
    block.judge().class == ValidityClass::Invalid
}

/// Pearson's statistic of cells × {left out, kept}.
fn chi_square(left_out: &[u64]) -> f64 {
    let all: u64 = left_out.iter().sum();
    let share = all as f64 / (left_out.len() as u64 * BLOCKS) as f64;
    let expected = share * BLOCKS as f64;
    let of = |seen: u64| (seen as f64 - expected).powi(2) / (expected * (1.0 - share));
    left_out.iter().map(|seen| of(*seen)).sum()
}

/// How many blocks of each cell are left out; every block has a disturbance of its own.
fn count() -> Vec<u64> {
    let of_cell = |(place, cell): (u64, &u64)| {
        let seeds = (0..BLOCKS).map(|block| place * BLOCKS + block);
        seeds.filter(|seed| left_out(&play(*cell, &disturbance(*seed)))).count() as u64
    };
    (0..).zip(&CELLS).map(of_cell).collect()
}

#[test]
fn which_block_is_left_out_is_independent_of_its_cell() {
    // The upper 1 % of chi-square with three degrees of freedom.
    let limit = 11.34;
    let left_out = count();
    let statistic = chi_square(&left_out);
    println!("{left_out:?} of {BLOCKS} left out, chi-square {statistic:.1}");
    let share = left_out.iter().sum::<u64>() as f64 / (CELLS.len() as u64 * BLOCKS) as f64;
    assert!((0.2..0.8).contains(&share), "the disturbances decide: {left_out:?}");
    assert!(statistic < limit, "{left_out:?}: {statistic}");
}
