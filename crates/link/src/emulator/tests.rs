use super::*;

const MS: u64 = 1_000_000;
const USER: u32 = 7;

fn links(texts: &[&str]) -> Vec<Link> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Users below 100 are unshaped, user 100 has the first link, and so on.
fn by_hundreds(user: u32) -> Option<usize> {
    (user / 100).checked_sub(1).map(|link| link as usize)
}

fn one(text: &str) -> Emulator<u32> {
    Emulator::new(links(&[text]), |_| Some(0), 1)
}

/// Everything that leaves until nothing is under way, each at its instant.
fn drain<P>(emulator: &mut Emulator<P>) -> Vec<Due<P>> {
    let mut all = Vec::new();
    while let Some(at_ns) = emulator.next_ns() {
        assert!(at_ns == 0 || emulator.poll(at_ns - 1).is_none(), "nothing leaves early");
        all.extend(std::iter::from_fn(|| emulator.poll(at_ns)));
    }
    all
}

#[test]
fn a_packet_takes_its_transmission_and_the_propagation() {
    let mut emulator = one("down=1.6mbit,up=750kbit,rtt=150ms");
    emulator.on_packet(10 * MS, Way::Down, USER, 1_500, 1);
    emulator.on_packet(10 * MS, Way::Up, USER, 40, 2);
    let left: Vec<_> = drain(&mut emulator).into_iter().map(|due| (due.packet, due.at_ns)).collect();
    // 40 × 8 / 750,000 s = 426,666.7 ns; 1,500 × 8 / 1,600,000 s = 7.5 ms.
    assert_eq!(left, [(2, 85 * MS + 426_666), (1, 92 * MS + 500_000)]);
}

#[test]
fn a_bulk_transfer_goes_at_exactly_the_rate() {
    // A rate that divides nothing: the rest below a nanosecond must not add up to a drift.
    for rate in [1_000_003, 1_600_000, 9_000_000, 19_999_999] {
        let mut emulator = one(&format!("down={rate}bit,up=1mbit,rtt=100ms,queue=1s"));
        let (mut now, mut bytes, mut last) = (0, 0u64, 0);
        for n in 0..20_000u32 {
            while !emulator.on_packet(now, Way::Down, USER, 1_500, n) {
                let due = emulator.poll(emulator.next_ns().unwrap()).unwrap();
                (now, last, bytes) = (now.max(due.at_ns), due.at_ns, bytes + 1_500);
            }
        }
        for due in drain(&mut emulator) {
            (last, bytes) = (due.at_ns, bytes + 1_500);
        }
        assert_eq!(bytes, 20_000 * 1_500);
        let exact = u128::from(bytes) * 8_000_000_000 / rate + 50 * u128::from(MS);
        assert!(exact.abs_diff(u128::from(last)) <= 1, "{rate}: {last} for {exact}");
    }
}

#[test]
fn a_queue_holds_its_bytes_and_no_more() {
    let mut emulator = one("down=8mbit,up=8mbit,rtt=100ms,queue=10ms");
    // 10,000 bytes: six packets of 1,500, and 1,000 bytes of small ones.
    let taken = (0..100).filter(|n| emulator.on_packet(0, Way::Down, USER, 1_500, *n)).count();
    assert_eq!(taken, 6);
    assert!(emulator.on_packet(0, Way::Down, USER, 1_000, 100));
    assert!(!emulator.on_packet(0, Way::Down, USER, 1, 101));
    // A millisecond carries 1,000 bytes; a packet leaves the queue when all of it is carried.
    assert!(!emulator.on_packet(MS, Way::Down, USER, 1_000, 102));
    assert!(emulator.on_packet(3 * MS / 2, Way::Down, USER, 1_500, 103));
    let counts = emulator.counts(Way::Down);
    assert_eq!((counts.packets, counts.tail_dropped, emulator.in_flight(Way::Down)), (104, 96, 8));
    let left = drain(&mut emulator);
    assert_eq!(left.iter().map(|due| due.packet).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 100, 103]);
    let waits: Vec<u64> = left.iter().map(|due| due.queued_ns / 1_000).collect();
    assert_eq!(waits, [0, 1_500, 3_000, 4_500, 6_000, 7_500, 9_000, 8_500]);
}

#[test]
fn users_and_directions_do_not_share_a_link() {
    let mut alone = one("4g");
    let mut beside = Emulator::new(links(&["4g", "slow-3g"]), by_hundreds, 1);
    for n in 0..50 {
        alone.on_packet(0, Way::Down, 100, 1_500, n);
        for user in [100, 101, 200, 5] {
            beside.on_packet(0, Way::Down, user, 1_500, n);
            beside.on_packet(0, Way::Up, user, 1_500, n);
        }
    }
    let times = |left: &[Due<u32>], user| {
        let own = left.iter().filter(|due| due.user == user && due.way == Way::Down);
        own.map(|due| due.at_ns).collect::<Vec<_>>()
    };
    let (alone, beside) = (drain(&mut alone), drain(&mut beside));
    assert_eq!(times(&alone, 100), times(&beside, 100));
    assert_eq!(times(&beside, 100), times(&beside, 101));
    assert_eq!(times(&beside, 200)[0], 200 * MS + 30 * MS);
    assert_eq!(times(&beside, 5), [0; 50], "an unshaped user waits for nothing");
}

#[test]
fn loss_is_the_stated_share_and_the_same_from_the_same_seed() {
    let fates = |seed| {
        let links = links(&["down=10gbit,up=10gbit,rtt=1ms,loss=1%"]);
        let mut emulator: Emulator<u32> = Emulator::new(links, |_| Some(0), seed);
        for n in 0..100_000 {
            let at = u64::from(n) * 2_000;
            assert!(emulator.on_packet(at, Way::Up, USER, 100, n));
            while emulator.poll(at).is_some() {}
        }
        drain(&mut emulator);
        let counts = emulator.counts(Way::Up);
        assert_eq!((counts.packets, counts.settled(), counts.tail_dropped), (100_000, 100_000, 0));
        counts
    };
    let counts = fates(1);
    // Five standard deviations of a binomial.
    assert!(counts.lost.abs_diff(1_000) < 5 * 32, "{counts:?}");
    assert_eq!(counts, fates(1));
    assert_ne!(counts.lost, fates(2).lost);
}

#[test]
fn jitter_delays_within_its_bound_and_keeps_the_order() {
    let mut emulator = one("down=1gbit,up=1gbit,rtt=20ms,jitter=5ms");
    for n in 0..10_000 {
        emulator.on_packet(u64::from(n) * MS, Way::Down, USER, 100, n);
    }
    let left = drain(&mut emulator);
    assert!(left.is_sorted_by_key(|due| due.packet));
    let extra: Vec<u64> =
        left.iter().map(|due| due.at_ns - 10 * MS - 800 - u64::from(due.packet) * MS).collect();
    assert!(extra.iter().all(|ns| *ns <= 5 * MS), "{:?}", extra.iter().max());
    let mean = extra.iter().sum::<u64>() / extra.len() as u64;
    // Waiting for a packet before it adds to the mean of half the bound.
    assert!((2_500_000..3_500_000).contains(&mean), "{mean}");
}

#[test]
fn a_trace_carries_1500_bytes_at_each_of_its_instants() {
    let file = std::env::temp_dir().join(format!("link-trace-{}", std::process::id()));
    std::fs::write(&file, "2\n4\n4\n10\n").unwrap();
    let mut emulator = one(&format!("down=@{},up=1mbit,rtt=0ms,queue=1s", file.display()));
    std::fs::remove_file(&file).unwrap();
    for (n, bytes) in [1_500, 700, 800, 1_500, 1_000, 1_000].into_iter().enumerate() {
        emulator.on_packet(0, Way::Down, USER, bytes, u32::try_from(n).unwrap());
    }
    let at = |left: Vec<Due<u32>>| left.iter().map(|due| due.at_ns / MS).collect::<Vec<_>>();
    assert_eq!(at(drain(&mut emulator)), [2, 4, 4, 4, 10, 12]);
    // The rest of an opportunity is gone when a later packet comes.
    emulator.on_packet(13 * MS, Way::Down, USER, 100, 0);
    emulator.on_packet(17 * MS, Way::Down, USER, 1_500, 1);
    assert_eq!(at(drain(&mut emulator)), [14, 20]);
}

/// Random packets, users and instants: whatever the link, a packet has one fate, order holds and
/// the queue keeps its bound.
#[test]
fn whatever_comes_every_packet_has_one_fate() {
    for seed in 0..40 {
        let mut luck = ChaCha8Rng::seed_from_u64(seed);
        let texts =
            ["slow-3g,loss=3%,jitter=20ms", "down=300kbit,up=5mbit,rtt=1ms,queue=40ms", "lte,jitter=1ms"];
        let links = links(&texts);
        let mut emulator: Emulator<u32> = Emulator::new(links.clone(), by_hundreds, seed);
        let (mut now, mut left, mut refused) = (0, Vec::new(), 0);
        for n in 0..2_000 {
            now += luck.next_u64() % (2 * MS);
            let user = u32::try_from(luck.next_u64() % 4 * 100 + luck.next_u64() % 3).unwrap();
            let way = if luck.next_u64() % 2 == 0 { Way::Down } else { Way::Up };
            let bytes = usize::try_from(20 + luck.next_u64() % 1_481).unwrap();
            refused += u64::from(!emulator.on_packet(now, way, user, bytes, n));
            if luck.next_u64() % 3 == 0 {
                left.extend(std::iter::from_fn(|| emulator.poll(now)));
            }
            for lane in &emulator.lanes {
                let queued: u64 = lane.packets.iter().skip(lane.departed).map(|packet| packet.bytes).sum();
                assert_eq!(queued, lane.queued_bytes);
                assert!(queued <= lane.direction.queue_bytes, "seed {seed}");
            }
            for way in [Way::Down, Way::Up] {
                let counts = emulator.counts(way);
                assert_eq!(counts.packets, counts.settled() + emulator.in_flight(way), "seed {seed}");
            }
        }
        left.extend(drain(&mut emulator));
        let (down, up) = (emulator.counts(Way::Down), emulator.counts(Way::Up));
        assert_eq!((down.settled(), up.settled()), (down.packets, up.packets), "seed {seed}");
        assert_eq!(down.packets + up.packets, 2_000);
        assert_eq!(down.tail_dropped + up.tail_dropped, refused);
        assert_eq!(down.forwarded + up.forwarded, left.len() as u64);
        let mut last = HashMap::new();
        for due in &left {
            let before = last.insert((due.way, due.user), (due.packet, due.at_ns));
            assert!(before.is_none_or(|before| before < (due.packet, due.at_ns) && before.1 <= due.at_ns));
        }
    }
}
