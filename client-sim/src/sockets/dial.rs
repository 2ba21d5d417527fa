//! Makes many connections: from several loopback addresses where one has too few ports.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, ensure};
use codecs::{Format, Implementation};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use wire::{Agreement, Connection, Dictionary, Endpoint, Header, Offer, RelayUrl, WireError, WireLimits};

use crate::sockets::resources::LocalPorts;
use workload::{Over, Role, Speaks, Workload};

/// Connections from one source address, where the system does not tell its ports.
const CONNECTIONS_PER_SOURCE: usize = 10_000;

/// Source addresses of an agent, so that all agents there may be have their own in 127.0.0.0/8.
const SOURCES_PER_AGENT: usize = 256;

/// The relay to connect to, and what to offer it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its address, and the root certificates to trust.
    pub relay: Endpoint,
    /// Formats, batching and compression to offer.
    pub offer: Offer,
    /// Buffers, limits, timeouts. That of handshakes is how long none of them may complete while
    /// some are under way.
    pub limits: WireLimits,
    /// The implementation of the format.
    pub implementation: Implementation,
    /// Whether the relay is reached over emulated links.
    pub over_links: bool,
}

/// The relay of a URL with the header fields of requests to it and, for `wss://`, the root
/// certificates to trust, read once for all connections.
pub(crate) fn endpoint(url: &str, ca: Option<&Path>, headers: &[Header]) -> anyhow::Result<Endpoint> {
    let relay = Endpoint::new(url.parse()?, ca).context("cannot check the relay's certificate")?;
    relay.with_headers(headers.to_vec()).context("--header")
}

impl Target {
    /// JSON without compression from whoever listens there.
    #[cfg(test)]
    pub(crate) fn plain(listener: &tokio::net::TcpListener) -> Target {
        let url = format!("ws://{}", listener.local_addr().expect("it listens"));
        let compression = wire::Compression::None;
        Target {
            relay: endpoint(&url, None, &[]).expect("it is no wss://"),
            offer: Offer { formats: vec![Format::JSON], batched: false, compression },
            limits: WireLimits::default(),
            implementation: Implementation::Library,
            over_links: false,
        }
    }

    /// The offer of a client that speaks something of its own.
    pub fn offer_of(&self, speaks: Speaks) -> Offer {
        Offer {
            formats: speaks.format.map_or_else(|| self.offer.formats.clone(), |format| vec![format]),
            compression: speaks.compression.unwrap_or(self.offer.compression),
            batched: self.offer.batched,
        }
    }

    /// Compares the agreement with what was offered. A run is labelled with what was offered, so
    /// any other agreement must not run.
    ///
    /// # Errors
    /// Says what differs and what to try.
    pub fn check(&self, offer: &Offer, agreement: &Agreement) -> anyhow::Result<()> {
        let url = self.relay.url();
        let asked = offer.formats.first().copied().unwrap_or(Format::JSON);
        let agreed = agreement.format;
        ensure!(
            agreed == asked,
            "{url} does not speak {asked}: it agreed on {agreed}. Try --format {agreed}, or a relay that speaks {asked}",
        );
        ensure!(
            agreement.batched == offer.batched,
            "{url} does not batch events. Leave out --batching, or try a relay that does",
        );
        let (asked, agreed) = (offer.compression.name(), agreement.compression.name());
        let dictionary =
            offer.compression.dictionary().or_else(|| Dictionary::bundled(agreement.format.name()));
        let dictionary = match dictionary.filter(|_| asked == "zstd-dict") {
            Some(dictionary) => format!(
                ", or give the relay the same --dictionary: {} is its name here, and the relay's NIP-11 document \
                 lists those that it has",
                dictionary.id()
            ),
            None => String::new(),
        };
        ensure!(
            asked == agreed,
            "{url} declined compression {asked}: it agreed on {agreed}. Try --compression {agreed}{dictionary}",
        );
        Ok(())
    }
}

/// Makes connections to the relay.
#[derive(Debug)]
pub struct Dialer {
    target: Target,
    /// The relay's address, when that is a loopback address given by number.
    local: Option<SocketAddr>,
    sources: usize,
    /// The number of the first source address.
    first_source: usize,
    made: AtomicUsize,
    /// Handshakes that the relay answered.
    answered: AtomicUsize,
    /// The address of each client's user, where there are links.
    users: Vec<Ipv4Addr>,
    /// How often clients ping the relay.
    pub(crate) ping_every: Option<Duration>,
}

impl Dialer {
    /// Makes a dialer for `connections` over the whole run, including reconnections.
    pub fn new(target: Target, connections: usize) -> Self {
        let local = numbered(target.relay.url()).filter(|relay| relay.ip().is_loopback());
        Dialer {
            sources: if local.is_some() { sources(connections) } else { 1 },
            target,
            local,
            first_source: 0,
            made: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            users: Vec::new(),
            ping_every: None,
        }
    }

    /// Gives each client the link of its user, where the relay is reached over links. The first one is
    /// the run's link if `run_has_link`. Links of populations follow. Without this its packets cross no
    /// link, as before the clock starts.
    ///
    /// # Errors
    /// When there are more users than addresses, or more links.
    pub fn with_users(mut self, workload: &Workload, run_has_link: bool) -> anyhow::Result<Dialer> {
        if self.target.over_links {
            self.users = users(workload, run_has_link)?;
        }
        Ok(self)
    }

    /// Gives an agent source addresses of its own, where the relay has a loopback address: agents
    /// on one machine would otherwise share the ports of one address.
    #[must_use]
    pub fn with_agent(mut self, index: u16) -> Dialer {
        if self.local.is_some() {
            self.first_source = (1 + usize::from(index)) * SOURCES_PER_AGENT;
        }
        self
    }

    /// The relay to connect to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Connects a client with this offer. `receive_buffer_bytes` sets the receive buffer of the
    /// socket (`SO_RCVBUF`, socket(7)).
    ///
    /// # Errors
    /// When the system refuses the connection, the handshake fails, or no handshake of this dialer
    /// was answered within the limit: a relay may take many one by one.
    pub async fn dial(
        &self,
        client: usize,
        offer: &Offer,
        receive_buffer_bytes: Option<u32>,
    ) -> Result<Connection, WireError> {
        let patience = self.target.limits.handshake_timeout;
        let mut dialing = pin!(self.dial_once(client, offer, receive_buffer_bytes));
        loop {
            let answered = self.answered.load(Ordering::Relaxed);
            match timeout(patience, &mut dialing).await {
                Ok(outcome) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    return outcome;
                }
                Err(_) if self.answered.load(Ordering::Relaxed) > answered => {}
                Err(_) => {
                    if let Some(unreached) = self.target.relay.unreached(patience) {
                        return Err(unreached);
                    }
                    let proxy = self.target.relay.ignored_proxy();
                    let reason = format!("for {patience:?} the relay answered no handshake{proxy}");
                    return Err(WireError::Handshake { reason, status: None });
                }
            }
        }
    }

    async fn dial_once(
        &self,
        client: usize,
        offer: &Offer,
        receive_buffer_bytes: Option<u32>,
    ) -> Result<Connection, WireError> {
        let Target { relay, limits, over_links, .. } = &self.target;
        let limits = &WireLimits { handshake_timeout: Duration::MAX, receive_buffer_bytes, ..*limits };
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let source = match (over_links, self.first_source, self.sources) {
            (true, ..) => Some(self.users.get(client).copied().unwrap_or(link::UNSHAPED)),
            (false, 0, 1) => None,
            (false, first, sources) => {
                let host = u32::try_from(first + made % sources).unwrap_or(0);
                Some(Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + host))
            }
        };
        let address = if *over_links { numbered(relay.url()) } else { self.local };
        match address.filter(|_| source.is_some()) {
            Some(address) => {
                let stream = stream(address, source, receive_buffer_bytes).await?;
                relay.connect_over(stream, offer, limits).await
            }
            None => relay.connect(offer, limits).await,
        }
    }
}

/// Refuses more connections to a relay than this machine has local ports. To a loopback address
/// that is given by number they come from several addresses.
///
/// # Errors
/// As [`LocalPorts::suffice_for`].
pub(crate) fn check_ports(url: &RelayUrl, connections: usize) -> anyhow::Result<()> {
    let has_sources = numbered(url).is_some_and(|relay| relay.ip().is_loopback());
    LocalPorts::read().filter(|_| !has_sources).map_or(Ok(()), |ports| ports.suffice_for(connections))
}

/// How many source addresses so many connections need.
fn sources(connections: usize) -> usize {
    let each = LocalPorts::read().map_or(CONNECTIONS_PER_SOURCE, LocalPorts::per_source);
    connections.div_ceil(each).max(1)
}

async fn stream(
    relay: SocketAddr,
    source: Option<Ipv4Addr>,
    receive_buffer_bytes: Option<u32>,
) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(bytes) = receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(source) = source {
        socket.bind(SocketAddr::new(IpAddr::V4(source), 0))?;
    }
    socket.connect(relay).await
}

/// The address of each client's user, which says which link it has: connections of one client that
/// reads from several relays share it.
fn users(workload: &Workload, run_has_link: bool) -> anyhow::Result<Vec<Ipv4Addr>> {
    let own = usize::from(run_has_link);
    let most = link::MOST_LINKS;
    ensure!(workload.links.len() + own <= most, "a run has at most {most} links; let populations share some");
    let address = |(role, user): (&Role, usize)| match role.speaks.over {
        Over::Run if run_has_link => link::user_address(0, user),
        Over::Run | Over::Nothing => Some(link::UNSHAPED),
        Over::Own(place) => link::user_address(place + own, user),
    };
    let addresses = workload.roles.iter().zip(workload.users()).map(address);
    addresses.collect::<Option<Vec<_>>>().with_context(|| {
        format!("a link has addresses for {} users; connect fewer with --set", link::MOST_USERS)
    })
}

/// The IPv4 address in a URL that gives it by number.
fn numbered(url: &RelayUrl) -> Option<SocketAddr> {
    url.socket_address().filter(|address| address.is_ipv4() && !url.is_secure())
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::{Reading, Task};

    #[test]
    fn only_a_numbered_address_gets_chosen_sources() {
        let numbered = |url: &str| numbered(&url.parse().unwrap());
        for url in ["ws://127.0.0.1:7777", "WS://me:s3cret@127.0.0.1:7777/path?query"] {
            assert_eq!(numbered(url), Some("127.0.0.1:7777".parse().unwrap()), "{url}");
        }
        for url in ["ws://localhost:7777", "ws://[::1]:80", "wss://127.0.0.1:1"] {
            assert_eq!(numbered(url), None, "{url}");
        }
    }

    fn role(task: Task, over: Over) -> Role {
        Role::new(None, Speaks { over, ..Speaks::default() }, task)
    }

    #[test]
    fn connections_of_one_reader_share_a_link_and_all_others_have_their_own() {
        let reader = |reader| role(Task::Reader(Reading { reader, peeks: false }), Over::Run);
        let publisher = role(Task::Publisher { window: 1 }, Over::Run);
        let roles = vec![publisher, reader(0), reader(1), reader(0), role(Task::Reconciler, Over::Run)];
        let workload = Workload { roles, readers: 2, ..Workload::default() };
        let users = users(&workload, true).unwrap();
        assert_eq!(users[1], users[3]);
        let distinct: std::collections::HashSet<_> = users.iter().collect();
        assert_eq!(distinct.len(), 4);
        let many = vec![role(Task::Reconciler, Over::Run); link::MOST_USERS + 1];
        let many = Workload { roles: many, ..Workload::default() };
        assert!(super::users(&many, true).unwrap_err().to_string().contains("--set"));
    }

    /// Dials so many at a time, with a limit of 400 ms, where each handshake takes the relay so
    /// long, one after the other.
    async fn dial_at_once(connections: usize, each: Duration) -> Vec<Result<Connection, WireError>> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut target = Target::plain(&listener);
        target.limits.handshake_timeout = Duration::from_millis(400);
        let dialer = Dialer::new(target, connections);
        let relay = async {
            let support = wire::Support::default();
            let limits = WireLimits::default();
            let config = wire::ServerConfig { support, limits, relay_info: String::new(), tls: None };
            let mut open = Vec::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::time::sleep(each).await;
                open.push(wire::accept(stream, &config).await);
            }
        };
        let dials = (0..connections).map(|client| dialer.dial(client, &dialer.target().offer, None));
        tokio::select! {
            dialled = futures::future::join_all(dials) => dialled,
            () = relay => unreachable!("it accepts for ever"),
        }
    }

    #[tokio::test]
    async fn a_relay_that_takes_handshakes_one_by_one_has_as_long_as_it_answers_some() {
        // All together take longer than the limit.
        let dialled = dial_at_once(16, Duration::from_millis(60)).await;
        assert!(dialled.iter().all(Result::is_ok), "{dialled:?}");
    }

    #[tokio::test]
    async fn a_relay_that_answers_no_handshake_is_given_up() {
        for dialled in dial_at_once(3, Duration::from_secs(3_600)).await {
            let error = dialled.unwrap_err().to_string();
            assert!(error.contains("for 400ms the relay answered no handshake"), "{error}");
        }
    }

    #[tokio::test]
    async fn agents_of_one_machine_have_source_addresses_of_their_own() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = Target::plain(&listener);
        let sources = |index, connections| {
            let dialer = Dialer::new(near.clone(), connections).with_agent(index);
            dialer.first_source..dialer.first_source + dialer.sources
        };
        assert_eq!([sources(0, 500), sources(1, 20_001)], [256..257, 512..515]);
        assert!(sources(u16::MAX - 1, 2_000_000).end < 1 << 24, "all are loopback's");
        let relay = Endpoint::new("ws://relay.example:7777".parse().unwrap(), None).unwrap();
        let far = Dialer::new(Target { relay, ..near }, 500).with_agent(3);
        assert_eq!(far.first_source, 0, "the system chooses");
    }

    #[test]
    fn a_population_has_its_own_link_that_of_the_run_or_none() {
        let of = |over| role(Task::Reconciler, over);
        let roles = vec![of(Over::Run), of(Over::Nothing), of(Over::Own(0)), of(Over::Own(1))];
        let links = ["wifi", "slow-4g"].map(|link| link.parse().unwrap()).to_vec();
        let workload = Workload { roles, links, ..Workload::default() };
        let text = |has| users(&workload, has).unwrap().iter().map(Ipv4Addr::to_string).collect::<Vec<_>>();
        assert_eq!(text(true), ["10.81.0.1", "10.80.0.1", "10.82.0.3", "10.83.0.4"]);
        assert_eq!(text(false), ["10.80.0.1", "10.80.0.1", "10.81.0.3", "10.82.0.4"]);
        let links = vec!["wifi".parse().unwrap(); link::MOST_LINKS];
        let error = users(&Workload { links, ..workload }, true).unwrap_err().to_string();
        assert!(error.contains("at most 15 links"), "{error}");
    }
}
