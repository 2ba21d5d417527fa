//! The links of all users as a state machine, without device and without clock: a packet comes in
//! with the time, and leaves when the time has come.
//!
//! A packet that finds room in the queue leaves it when the packets before it and it itself have
//! been carried at the link's rate; it arrives a propagation delay later, unless it is lost. Loss
//! and jitter are drawn from the seed, for each user and direction apart, so that one user's
//! packets do not change the luck of another.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
};

use crate::{
    profile::{Capacity, Direction, Link},
    trace::MTU,
};
use measure::{AddUp, LinkFlow};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// From relay to user.
    Down,
    /// From user to relay.
    Up,
}

impl Way {
    /// Down is 0, up is 1.
    pub(crate) fn place(self) -> usize {
        usize::from(self == Way::Up)
    }
}

/// A packet whose time has come.
#[derive(Debug, PartialEq, Eq)]
pub struct Due<P> {
    /// When it was to go on.
    pub at_ns: u64,
    /// How long it waited before the link began to carry it.
    pub queued_ns: u64,
    /// Which way it goes.
    pub way: Way,
    /// The user whose link it crosses.
    pub user: u32,
    /// The packet itself.
    pub packet: P,
}

/// All links. `P` is a packet.
#[derive(Debug)]
pub struct Emulator<P> {
    /// Decides which link a user has.
    link_of: fn(u32) -> Option<usize>,
    links: Vec<Link>,
    seed: u64,
    lanes: Vec<Lane<P>>,
    lane_of: HashMap<(Way, u32), usize>,
    /// The first packet of each lane that has one: its instant and its lane.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Counts of each link, down and up; the last are those of users without one.
    counts: Vec<[LinkFlow; 2]>,
}

impl<P> Emulator<P> {
    /// Links that carry nothing yet. `link_of` names the place in `links` of a user's link; `None`
    /// for users whose packets pass at once.
    pub fn new(links: Vec<Link>, link_of: fn(u32) -> Option<usize>, seed: u64) -> Emulator<P> {
        Emulator {
            counts: vec![Default::default(); links.len() + 1],
            link_of,
            links,
            seed,
            lanes: Vec::new(),
            lane_of: HashMap::new(),
            heads: BinaryHeap::new(),
        }
    }

    /// Takes a packet of `bytes` at an instant. Instants never go back. False if the queue was
    /// full.
    pub fn on_packet(&mut self, now_ns: u64, way: Way, user: u32, bytes: usize, packet: P) -> bool {
        let place = self.lane(way, user);
        let lane = &mut self.lanes[place];
        let (was_empty, link) = (lane.packets.is_empty(), lane.link);
        let fits = lane.take(now_ns, bytes as u64, packet);
        if let Some(first) = lane.packets.front().filter(|_| was_empty) {
            self.heads.push(Reverse((first.arrives_ns, place)));
        }
        self.count(way, link, |counts| {
            counts.packets += 1;
            counts.tail_dropped += u64::from(!fits);
        });
        fits
    }

    /// The next packet that is due at this instant. Call it until it returns `None`.
    pub fn poll(&mut self, now_ns: u64) -> Option<Due<P>> {
        loop {
            let Reverse((at_ns, place)) = *self.heads.peek()?;
            if at_ns > now_ns {
                return None;
            }
            self.heads.pop();
            let lane = &mut self.lanes[place];
            let (way, user, link) = (lane.way, lane.user, lane.link);
            let packet = lane.release().expect("a lane among the heads has a packet");
            if let Some(next) = lane.packets.front() {
                self.heads.push(Reverse((next.arrives_ns, place)));
            }
            if packet.lost {
                self.count(way, link, |counts| counts.lost += 1);
                continue;
            }
            self.count(way, link, |counts| {
                counts.forwarded += 1;
                counts.forwarded_bytes += packet.bytes;
                counts.queued.record(packet.queued_ns);
            });
            return Some(Due { at_ns, queued_ns: packet.queued_ns, way, user, packet: packet.packet });
        }
    }

    /// When the next packet is due; `None` when nothing is under way.
    pub fn next_ns(&self) -> Option<u64> {
        self.heads.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Fates of the packets of a direction, over all links, since the last [`Emulator::begin`].
    pub fn counts(&self, way: Way) -> LinkFlow {
        let mut sum = LinkFlow::default();
        self.counts.iter().for_each(|both| sum.add_up(&both[way.place()]));
        sum
    }

    /// Fates of the packets of one link, by its place, down and up.
    pub fn counts_of(&self, link: usize) -> [LinkFlow; 2] {
        self.counts[link].clone()
    }

    /// Counts from now on.
    pub fn begin(&mut self) {
        self.counts.fill_with(Default::default);
    }

    /// Packets of a direction that wait, are being carried, or are on the way.
    pub fn in_flight(&self, way: Way) -> u64 {
        self.lanes.iter().filter(|lane| lane.way == way).map(|lane| lane.packets.len() as u64).sum()
    }

    fn count(&mut self, way: Way, link: Option<usize>, change: impl FnOnce(&mut LinkFlow)) {
        change(&mut self.counts[link.unwrap_or(self.links.len())][way.place()]);
    }

    fn lane(&mut self, way: Way, user: u32) -> usize {
        if let Some(place) = self.lane_of.get(&(way, user)) {
            return *place;
        }
        let link = (self.link_of)(user).filter(|link| *link < self.links.len());
        let direction = match link.map(|link| &self.links[link]) {
            None => Direction::UNSHAPED,
            Some(link) if way == Way::Down => link.down.clone(),
            Some(link) => link.up.clone(),
        };
        let place = self.lanes.len();
        // One stream of random numbers for each user and direction (ChaCha's nonce).
        let mut luck = ChaCha8Rng::seed_from_u64(self.seed);
        luck.set_stream(u64::from(user) << 1 | u64::from(way == Way::Up));
        self.lanes.push(Lane::new(way, (user, link), direction, luck));
        self.lane_of.insert((way, user), place);
        place
    }
}

/// One direction of one user's link.
#[derive(Debug)]
struct Lane<P> {
    way: Way,
    user: u32,
    /// The place of the user's link.
    link: Option<usize>,
    direction: Direction,
    luck: ChaCha8Rng,
    /// Waiting, being carried, or on the way.
    packets: VecDeque<Packet<P>>,
    /// How many of the packets have left the queue, from the front.
    departed: usize,
    /// Bytes of the others.
    queued_bytes: u64,
    carrier: Carrier,
    last_arrival_ns: u64,
}

#[derive(Debug)]
struct Packet<P> {
    bytes: u64,
    queued_ns: u64,
    departs_ns: u64,
    arrives_ns: u64,
    lost: bool,
    packet: P,
}

/// The packets that a direction still has to carry.
#[derive(Debug, Default)]
struct Carrier {
    /// When the last packet has been carried.
    free_ns: u64,
    /// Bit-nanoseconds beyond `free_ns` that the whole nanoseconds leave over, below the rate.
    rest: u64,
    /// In a trace: the first opportunity that no packet has used, and the rest of the one before.
    next: u64,
    left_bytes: u64,
}

impl Carrier {
    /// Carries a packet after the packets before it. Returns when that begins and when it is done.
    fn carry(&mut self, capacity: &Capacity, now_ns: u64, bytes: u64) -> (u64, u64) {
        match capacity {
            Capacity::Unlimited => (now_ns, now_ns),
            Capacity::BitsPerSecond(rate) => {
                let begins_ns = self.free_ns.max(now_ns);
                let rest = if self.free_ns > now_ns { self.rest } else { 0 };
                // At most 1,500 bytes, hence 12,000 × 10⁹ + 10¹⁰.
                let work = bytes * 8_000_000_000 + rest;
                (self.free_ns, self.rest) = (begins_ns + work / rate, work % rate);
                (begins_ns, self.free_ns)
            }
            Capacity::Trace(_, trace) => {
                let usable = self.left_bytes > 0 && trace.at_ns(self.next - 1) >= now_ns;
                if !usable {
                    self.next = self.next.max(trace.first_from(now_ns)) + 1;
                    self.left_bytes = MTU as u64;
                }
                let begins_ns = trace.at_ns(self.next - 1);
                let mut left = bytes;
                while left > self.left_bytes {
                    left -= self.left_bytes;
                    (self.next, self.left_bytes) = (self.next + 1, MTU as u64);
                }
                self.left_bytes -= left;
                self.free_ns = trace.at_ns(self.next - 1);
                (begins_ns, self.free_ns)
            }
        }
    }
}

impl<P> Lane<P> {
    fn new(way: Way, (user, link): (u32, Option<usize>), direction: Direction, luck: ChaCha8Rng) -> Lane<P> {
        Lane {
            way,
            user,
            link,
            direction,
            luck,
            packets: VecDeque::new(),
            departed: 0,
            queued_bytes: 0,
            carrier: Carrier::default(),
            last_arrival_ns: 0,
        }
    }

    fn take(&mut self, now_ns: u64, bytes: u64, packet: P) -> bool {
        while let Some(next) = self.packets.get(self.departed).filter(|next| next.departs_ns <= now_ns) {
            self.queued_bytes -= next.bytes;
            self.departed += 1;
        }
        let Direction { capacity, delay_ns, jitter_ns, queue_bytes, loss_ppm } = &self.direction;
        if self.queued_bytes.saturating_add(bytes) > *queue_bytes {
            return false;
        }
        let (begins_ns, departs_ns) = self.carrier.carry(capacity, now_ns, bytes);
        let mut below = |bound: u64| self.luck.next_u64() % bound;
        let lost = *loss_ppm > 0 && below(1_000_000) < u64::from(*loss_ppm);
        let jitter_ns = if *jitter_ns > 0 { below(jitter_ns + 1) } else { 0 };
        // No packet overtakes another.
        let arrives_ns = (departs_ns + delay_ns + jitter_ns).max(self.last_arrival_ns);
        self.last_arrival_ns = arrives_ns;
        self.queued_bytes += bytes;
        let queued_ns = begins_ns - now_ns;
        self.packets.push_back(Packet { bytes, queued_ns, departs_ns, arrives_ns, lost, packet });
        true
    }

    /// Takes the first packet, which has arrived and hence departed.
    fn release(&mut self) -> Option<Packet<P>> {
        let packet = self.packets.pop_front()?;
        match self.departed {
            0 => self.queued_bytes -= packet.bytes,
            _ => self.departed -= 1,
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests;
