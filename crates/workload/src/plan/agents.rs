//! Splits a plan between agents: processes that play one plan together, each on its part of the
//! connections.

use std::{collections::HashSet, num::NonZeroU16, str::FromStr, time::Duration};

use super::{Reading, Task, Workload};
use crate::scenario::{Arrival, Connect, Request, Scenario};

/// Which part of a plan a process plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The agent, from 0.
    pub index: u16,
    /// How many agents play the plan.
    pub of: NonZeroU16,
}

impl Share {
    /// All of a plan.
    pub const WHOLE: Share = Share { index: 0, of: NonZeroU16::MIN };

    /// Nobody's: all publications, and of no session or subscription more than that it exists.
    pub const NOBODYS: Share = Share { index: u16::MAX, of: NonZeroU16::MAX };

    /// The agent of a user.
    fn agent_of(self, user: usize) -> usize {
        user % usize::from(self.of.get())
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let known = || {
            let (index, of) = text.split_once('/')?;
            let share = Share { index: index.parse().ok()?, of: of.parse().ok()? };
            (share.index < share.of.get()).then_some(share)
        };
        known().ok_or_else(|| {
            format!(
                "{text:?} is no share of a plan; expected I/N, as in 0/4: I from 0 to N - 1, N at most 65535"
            )
        })
    }
}

/// Sessions of other agents as an agent knows them, whose requests it does not plan.
#[derive(Debug, Clone)]
pub struct Elsewhere {
    share: Share,
    /// Clients that read from several relays: they come first among the users.
    readers: usize,
    /// When the first of these sessions is due, from the start.
    pub(super) first: Option<Duration>,
    /// When the last of them ends, from the start.
    pub(super) end: Duration,
    /// Whether any of them follows another.
    pub(super) follows: bool,
    /// The connections that they make, by agent.
    pub(crate) made: Vec<u64>,
}

impl Elsewhere {
    /// `None` for a whole plan.
    pub(super) fn new(scenario: &Scenario, share: Share) -> Option<Elsewhere> {
        let of = usize::from(share.of.get());
        let readers = scenario.fan_in.iter().map(|fan_in| fan_in.clients).sum();
        let made = vec![0; of];
        let (first, end, follows) = (None, Duration::ZERO, false);
        (of > 1).then_some(Elsewhere { share, readers, first, end, follows, made })
    }

    /// Whether another agent has this connection, which is of no client with several relays.
    pub(super) fn has(&self, connection: usize) -> bool {
        self.share.agent_of(self.readers + connection) != usize::from(self.share.index)
    }

    /// Adds the sessions of such a connection, due at these instants.
    pub(super) fn add(&mut self, connection: usize, request: &Request, due: &[Duration]) {
        let stay = Duration::from_millis(request.stay_ms.unwrap_or(0));
        self.first = self.first.into_iter().chain(due.iter().copied()).min();
        self.end = due.iter().map(|at| *at + stay).fold(self.end, Duration::max);
        self.follows |= due.len() > 1 && matches!(request.arrival, Arrival::Closed { .. });
        if request.connect != Connect::Before {
            self.made[self.share.agent_of(self.readers + connection)] += due.len() as u64;
        }
    }
}

impl Workload {
    /// The agent that carries each connection, from 0, when `of` agents play the plan together.
    ///
    /// Users go to the agents in turn, so that each agent has its part of every population and all
    /// connections of its users. An agent's share follows from seed, index and `of` alone.
    pub fn agents(&self, of: NonZeroU16) -> Vec<usize> {
        let share = Share { index: 0, of };
        self.users().into_iter().map(|user| share.agent_of(user)).collect()
    }

    /// Whether other agents have connections that read.
    pub fn reads_elsewhere(&self) -> bool {
        self.elsewhere.is_some() && self.roles.iter().any(|role| !matches!(role.task, Task::Publisher { .. }))
    }

    /// Whether each connection is one of agent `index`, when `of` agents play the plan together.
    pub fn carried_by(&self, index: u16, of: NonZeroU16) -> Vec<bool> {
        self.agents(of).into_iter().map(|agent| agent == usize::from(index)).collect()
    }

    /// How many deliveries bring a client with several relays an event that it has, over chosen
    /// connections: all or none of each client's.
    pub fn repeats(&self, chosen: impl Fn(usize) -> bool) -> u64 {
        self.repeats_of(chosen, |_| 1)
    }

    /// As `repeats`, if session n is played `times(n)` times.
    pub fn repeats_of(&self, chosen: impl Fn(usize) -> bool, times: impl Fn(u32) -> u64) -> u64 {
        let mut known = HashSet::new();
        let mut repeats = 0;
        for (n, session) in (0..).zip(&self.sessions).filter(|(_, session)| chosen(session.connection)) {
            let Task::Reader(Reading { reader, .. }) = self.roles[session.connection].task else { continue };
            let times = times(n);
            for event in session.steps.iter().flatten().flat_map(|request| &request.expected) {
                let is_new = times > 0 && known.insert((reader, *event));
                repeats += times - u64::from(is_new);
            }
        }
        repeats
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::BTreeMap, sync::LazyLock};

    use codecs::Format;
    use corpus::Corpus;

    use super::*;
    use crate::{inputs::plan_over, plan::tests::scenario, plan_facts::PlanFacts};

    /// The plan of each scenario: making one takes a second without optimisation.
    pub(crate) static PLANS: LazyLock<Vec<(&str, Workload)>> = LazyLock::new(|| {
        let corpus = Corpus::bundled();
        let plan = |name| (name, plan_over(&scenario(name), &corpus, 1, &[Format::JSON]).unwrap());
        Scenario::names().into_iter().map(plan).collect()
    });

    #[test]
    fn a_share_is_below_its_number() {
        let share = |index, of| Ok(Share { index, of: NonZeroU16::new(of).unwrap() });
        assert_eq!("0/1".parse::<Share>(), share(0, 1));
        assert_eq!("65534/65535".parse::<Share>(), share(65_534, 65_535));
        let nobody = Share::NOBODYS;
        assert!((0..200_000).all(|user| nobody.agent_of(user) != usize::from(nobody.index)));
        for text in ["", "/", "0", "1/1", "0/0", "-1/2", "0/65536", "1/2/3", "a/b", "0 /2"] {
            assert!(text.parse::<Share>().unwrap_err().contains("expected I/N"), "{text}");
        }
    }

    #[test]
    fn agents_have_equal_parts_of_every_population_whatever_their_number() {
        for (scenario, whole) in &*PLANS {
            for of in [1, 2, 7, 64].map(|of| NonZeroU16::new(of).unwrap()) {
                assert_alike(whole, &whole.agents(of), of, scenario);
            }
        }
    }

    /// Each agent has as many users of each population as the others, or one more, and no user is
    /// with two agents.
    fn assert_alike(plan: &Workload, agents: &[usize], of: NonZeroU16, scenario: &str) {
        let mut carried_by = BTreeMap::new();
        let mut shares: BTreeMap<_, BTreeMap<usize, HashSet<usize>>> = BTreeMap::new();
        for ((role, user), agent) in plan.roles.iter().zip(plan.users()).zip(agents) {
            assert!(*agent < usize::from(of.get()));
            assert_eq!(*carried_by.entry(user).or_insert(agent), agent, "{scenario}: user {user}");
            let kind = std::mem::discriminant(&role.task);
            let population = (role.label, format!("{kind:?}"));
            shares.entry(population).or_default().entry(*agent).or_default().insert(user);
        }
        // Populations without a name that do the same stand together here, next to each other.
        for (population, shares) in shares {
            let of_agent = |agent| shares.get(&agent).map_or(0, HashSet::len);
            let counts: Vec<_> = (0..usize::from(of.get())).map(of_agent).collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1, "{scenario} {population:?}: {counts:?}");
        }
    }

    /// Subscriptions of a connection, and its requests in its sessions, in the order of these.
    fn reads(plan: &Workload, connection: usize) -> String {
        let live = |places: &[u32]| -> Vec<_> {
            let one = |place: &u32| &plan.live[*place as usize];
            places
                .iter()
                .map(one)
                .map(|live| (&live.filter, live.matches.ones().collect::<Vec<_>>()))
                .collect()
        };
        let sessions = (0_u32..).zip(&plan.sessions).filter(|(_, session)| session.connection == connection);
        let sessions = sessions.map(|(n, session)| {
            let next = session.next.map(|next| next - n);
            let asks = (&session.steps, &session.reconciliation, live(&session.live));
            format!("{:?}", (session.at, asks, session.stay, next, session.think, session.follows))
        });
        format!("{:?} {:?}", live(plan.roles[connection].filters()), sessions.collect::<Vec<_>>())
    }

    /// All publications stay; only requests and live subscriptions of other agents are left out.
    #[test]
    fn a_share_planned_alone_plays_as_in_the_whole_plan() {
        let corpus = Corpus::bundled();
        let of = NonZeroU16::new(3).unwrap();
        let made = |facts: &[PlanFacts]| facts.iter().map(|one| one.connections_made).collect::<Vec<_>>();
        let mut left_out = 0;
        for (name, whole) in &*PLANS {
            let facts = PlanFacts::by_agent(whole, of);
            for index in [0, 2] {
                let share = Share { index, of };
                let own = Workload::plan_share(&scenario(name), &corpus, 1, &[Format::JSON], share).unwrap();
                assert_eq!(own.sha256(), whole.sha256(), "{name}");
                assert_eq!(
                    (own.first_due(), own.last_due(), own.is_closed()),
                    (whole.first_due(), whole.last_due(), whole.is_closed()),
                    "{name}"
                );
                assert_eq!((own.users(), &own.publications), (whole.users(), &whole.publications), "{name}");
                let carried = own.carried_by(index, of);
                for connection in (0..carried.len()).filter(|connection| carried[*connection]) {
                    assert_eq!(reads(&own, connection), reads(whole, connection), "{name}: {connection}");
                }
                left_out += whole.sessions.len() - own.sessions.len();
                let own_facts = PlanFacts::by_agent(&own, of);
                assert_eq!(own_facts[usize::from(index)], facts[usize::from(index)], "{name}");
                assert_eq!(made(&own_facts), made(&facts), "{name}: all know who connects how often");
                // What others may ask for counts as asked.
                let asked = own.asked();
                assert!(whole.asked().iter().all(|event| asked.contains(event)), "{name}");
            }
        }
        assert!(left_out > 1_000, "{left_out} sessions of others are not planned");
    }

    #[test]
    fn connections_of_one_client_stay_together_and_its_repeats_with_them() {
        let (_, plan) = PLANS.iter().find(|(name, _)| *name == "duplicate-fan-in").unwrap();
        for of in (1..20).map(|of| NonZeroU16::new(of).unwrap()) {
            let agents = plan.agents(of);
            let share = |agent| plan.repeats(|connection| agents[connection] == agent);
            let shares: Vec<u64> = (0..usize::from(of.get())).map(share).collect();
            assert_eq!(shares.iter().sum::<u64>(), plan.repeats(|_| true), "{of} agents");
            let idle = usize::from(of.get()).saturating_sub(plan.readers);
            assert_eq!(shares.iter().filter(|share| **share == 0).count(), idle, "{of} agents");
        }
    }
}
