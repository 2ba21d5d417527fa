//! Round trips and bytes that a client pays before its first event, counted over a link whose round
//! trip is known.

use std::{
    borrow::Cow,
    ffi::OsString,
    fmt::Write as _,
    io::{self, Read, Write as _},
    net::{self, SocketAddr, TcpListener},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use codecs::{ClientMessage, Event, Filter, Format, RelayMessage};
use link::Link;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep, timeout},
};
use wire::{Connection, Endpoint, Offer, WireError, WireLimits};

use crate::{
    dial::endpoint,
    links::{self, Links},
    own_relay::OwnRelay,
};

/// So fast that the bytes of a handshake take no tenth of a round trip, and a round trip so long
/// that no computation does.
const LINK: &str = "down=100mbit:up=100mbit:rtt=100ms";

/// Upper bound on all steps together.
const PATIENCE: Duration = Duration::from_secs(60);

/// Compressions to offer beside none.
const COMPRESSIONS: [&str; 3] = ["deflate", "deflate-shared", "zstd"];

/// A format to offer beside JSON.
const FORMAT: &str = "dannypack";

/// Files of the relay that speaks TLS.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// How far from a whole number of round trips a step may end: computation takes the rest.
const MOST_OFF: f64 = 0.4;

/// Cost of a step: time ÷ round trip, and bytes of IP packets with their headers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    /// A whole number.
    round_trips: f64,
    up_bytes: u64,
    down_bytes: u64,
}

impl Cost {
    /// The part of a longer step that a shorter one is not.
    fn beyond(self, other: Cost) -> Cost {
        Cost {
            round_trips: self.round_trips - other.round_trips,
            up_bytes: self.up_bytes.saturating_sub(other.up_bytes),
            down_bytes: self.down_bytes.saturating_sub(other.down_bytes),
        }
    }

    fn and(self, other: Cost) -> Cost {
        Cost {
            round_trips: self.round_trips + other.round_trips,
            up_bytes: self.up_bytes + other.up_bytes,
            down_bytes: self.down_bytes + other.down_bytes,
        }
    }
}

/// A row of the table.
struct Step {
    what: String,
    cost: Cost,
}

/// Counts every step; a table in Markdown. Call it in a process of one thread; the process stays in
/// the link's namespaces.
///
/// # Errors
/// When this host cannot emulate links, or a step fails.
pub(crate) fn table() -> anyhow::Result<String> {
    let folder = tempfile::tempdir().context("cannot make a directory in TMPDIR for a certificate")?;
    certificate(folder.path())?;
    link::enter()?;
    let link: Link = LINK.parse()?;
    let mut links = Links::start(std::slice::from_ref(&link), 1, link::DEFAULT_CONGESTION)?;
    let spawn = |flags: &[&str]| {
        let flags: Vec<OsString> = flags.iter().map(Into::into).collect();
        OwnRelay::spawn(&flags, (link::RELAY, 0).into()).context("a relay of our own did not start")
    };
    let path = |name: &str| folder.path().join(name).display().to_string();
    let granting = spawn(&[])?;
    let granted = endpoint(&granting.url, None, &[])?;
    let ignoring = before(&granted, Subprotocols::Ignored)?;
    let refusing = before(&granted, Subprotocols::Refused)?;
    let secure = spawn(&["--tls-cert", &path(CERTIFICATE), "--tls-key", &path(KEY)])?;
    let relays = Relays {
        granting: granted,
        ignoring,
        refusing,
        secure: endpoint(&secure.url, Some(&folder.path().join(CERTIFICATE)), &[])?,
    };
    links.emulation.join_users()?;
    let ended = links.ended();
    let rtt = Duration::from_nanos(link.down.delay_ns + link.up.delay_ns);
    let mut bench = Bench { links, rtt, users: 0 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let steps = runtime.block_on(links::unless_ended(ended, async {
        let steps = timeout(PATIENCE, bench.steps(&relays)).await;
        steps.unwrap_or_else(|_| bail!("the handshakes did not end within {} s", PATIENCE.as_secs()))
    }))?;
    Ok(markdown(&steps))
}

/// Writes a certificate that signs itself.
fn certificate(folder: &Path) -> anyhow::Result<()> {
    let made =
        rcgen::generate_simple_self_signed([link::RELAY.to_string()]).context("cannot make a certificate")?;
    std::fs::write(folder.join(CERTIFICATE), made.cert.pem()).context("cannot write a certificate")?;
    std::fs::write(folder.join(KEY), made.signing_key.serialize_pem()).context("cannot write a key")
}

/// Answers of relays that know no subprotocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subprotocols {
    Ignored,
    Refused,
}

/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// Stands before a relay, in the network namespace of the calling thread, and makes it one that
/// knows no subprotocols.
fn before(granting: &Endpoint, subprotocols: Subprotocols) -> anyhow::Result<Endpoint> {
    let address = address(granting)?;
    let listener = TcpListener::bind((link::RELAY, 0)).context("cannot listen in the relay's namespace")?;
    let own = listener.local_addr()?;
    // A thread keeps the namespace in which it was started. It ends with the process.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // A client that closes ends its connection alone.
            thread::spawn(move || stand_between(client, address, subprotocols));
        }
    });
    endpoint(&format!("ws://{own}"), None, &[])
}

fn stand_between(
    mut client: net::TcpStream,
    relay: SocketAddr,
    subprotocols: Subprotocols,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
        let mut bytes = [0; 1024];
        let count = client.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&bytes[..count]);
    }
    if subprotocols == Subprotocols::Refused {
        return client
            .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let mut relay = net::TcpStream::connect(relay)?;
    relay.set_nodelay(true)?;
    let named = |line: &&[u8]| line.to_ascii_lowercase().starts_with(b"sec-websocket-protocol:");
    let rest: Vec<&[u8]> = head.split_inclusive(|byte| *byte == b'\n').filter(|line| !named(line)).collect();
    relay.write_all(&rest.concat())?;
    let (mut from_client, mut to_relay) = (client.try_clone()?, relay.try_clone()?);
    thread::spawn(move || io::copy(&mut from_client, &mut to_relay));
    io::copy(&mut relay, &mut client).map(drop)
}

fn address(relay: &Endpoint) -> anyhow::Result<SocketAddr> {
    relay.url().socket_address().context("a relay of our own announces its address by number")
}

fn markdown(steps: &[Step]) -> String {
    let mut text =
        String::from("| step | round trips | bytes up | bytes down |\n| --- | ---: | ---: | ---: |\n");
    for Step { what, cost: Cost { round_trips, up_bytes, down_bytes } } in steps {
        writeln!(text, "| {what} | {round_trips:.0} | {up_bytes} | {down_bytes} |")
            .expect("writing into a String cannot fail");
    }
    text
}

/// The relays at the other end of the link.
struct Relays {
    /// Grants every format and compression.
    granting: Endpoint,
    /// Knows no subprotocols, and ignores them.
    ignoring: Endpoint,
    /// Knows no subprotocols, and refuses them with HTTP 400.
    refusing: Endpoint,
    /// Speaks `wss://`.
    secure: Endpoint,
}

/// Where steps are counted, each by a user of its own.
struct Bench {
    links: Links,
    rtt: Duration,
    users: usize,
}

impl Bench {
    async fn steps(&mut self, relays: &Relays) -> anyhow::Result<Vec<Step>> {
        let json = offer("json", "none")?;
        let (tcp, ws, mut open) = self.plain(&relays.granting, &json).await?;
        let (wss, _secure) = self.open(&relays.secure, &json).await?;
        let mut steps = vec![
            step("TCP", tcp),
            step("TLS 1.3 with a certificate that signs itself", wss.beyond(ws)),
            step("WebSocket upgrade, no extension", ws.beyond(tcp)),
        ];
        for name in COMPRESSIONS {
            let (cost, granted) = self.open(&relays.granting, &offer("json", name)?).await?;
            let agreed = granted.agreement().compression.name();
            ensure!(agreed != "none", "the relay declined {name}");
            steps.push(step(&format!("WebSocket upgrade, {name}"), cost.beyond(tcp)));
        }
        let other = offer(FORMAT, "none")?;
        let (cost, granted) = self.open(&relays.granting, &other).await?;
        ensure!(granted.agreement().format.name() == FORMAT, "the relay declined {FORMAT}");
        steps.push(step(&format!("WebSocket upgrade, {FORMAT}"), cost.beyond(tcp)));
        let (cost, ignored) = self.open(&relays.ignoring, &other).await?;
        ensure!(ignored.agreement().token.is_none(), "the relay chose a subprotocol");
        let what = format!("WebSocket upgrade, {FORMAT} ignored: JSON on this connection");
        steps.push(step(&what, cost.beyond(tcp)));
        let cost = self.refused(relays, &other, &json).await?;
        let what = format!("WebSocket upgrade, {FORMAT} refused: JSON on a new connection");
        steps.push(step(&what, cost.beyond(tcp)));
        publish(&relays.granting).await?;
        let first = self.first_event(&mut open).await?;
        steps.push(step("REQ until its first event", first));
        steps.push(step("All of it over ws://, JSON", ws.and(first)));
        steps.push(step("All of it over wss://, JSON", wss.and(first)));
        Ok(steps)
    }

    /// A TCP connection, and the upgrade on top of it; the cost of both counts both.
    async fn plain(&mut self, relay: &Endpoint, offer: &Offer) -> anyhow::Result<(Cost, Cost, Connection)> {
        let start = self.begin().await?;
        let stream = self.dial(relay).await?;
        let tcp = self.end(start).await?;
        drop(stream);
        let (both, connection) = self.open(relay, offer).await?;
        Ok((tcp, both, connection))
    }

    /// Everything until a connection is open.
    async fn open(&mut self, relay: &Endpoint, offer: &Offer) -> anyhow::Result<(Cost, Connection)> {
        let start = self.begin().await?;
        let stream = self.dial(relay).await?;
        let connection = relay.connect_over(stream, offer, &WireLimits::default()).await?;
        Ok((self.end(start).await?, connection))
    }

    /// An offer that is refused, and another one over a new connection.
    async fn refused(&mut self, relays: &Relays, offer: &Offer, then: &Offer) -> anyhow::Result<Cost> {
        let (refusing, granting, limits) = (&relays.refusing, &relays.granting, WireLimits::default());
        let start = self.begin().await?;
        match refusing.connect_over(self.dial(refusing).await?, offer, &limits).await {
            Err(WireError::Handshake { status: Some(400), .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => bail!("the relay did not refuse the subprotocol"),
        }
        let again = granting.connect_over(self.dial(granting).await?, then, &limits).await?;
        let cost = self.end(start).await?;
        drop(again);
        Ok(cost)
    }

    /// From a request for one stored event to that event.
    async fn first_event(&mut self, connection: &mut Connection) -> anyhow::Result<Cost> {
        let filters = vec![Filter { limit: Some(1), ..Filter::default() }];
        let start = self.begin().await?;
        send(connection, &ClientMessage::Req { subscription: "first".into(), filters }).await?;
        receive(connection, |message| matches!(message, RelayMessage::Event { .. })).await?;
        self.end(start).await
    }

    /// A TCP connection over the link of another user.
    async fn dial(&mut self, relay: &Endpoint) -> anyhow::Result<TcpStream> {
        let user = link::user_address(0, self.users).context("so many users have addresses")?;
        self.users += 1;
        let socket = TcpSocket::new_v4()?;
        socket.bind((user, 0).into())?;
        let connected = socket.connect(address(relay)?).await;
        connected.with_context(|| format!("cannot connect to {} over the link", relay.url()))
    }

    /// Counts from now on, when what was closed before has ended.
    async fn begin(&mut self) -> anyhow::Result<Instant> {
        sleep(self.rtt * 2).await;
        self.links.emulation.begin()?;
        Ok(Instant::now())
    }

    /// Cost since `start`, with the bytes of acknowledgements and session tickets that are still
    /// under way.
    async fn end(&mut self, start: Instant) -> anyhow::Result<Cost> {
        let spent = start.elapsed();
        sleep(self.rtt * 2).await;
        let report = self.links.emulation.report()?;
        ensure!(report.unbalanced.is_none(), "packets are missing: {:?}", report.unbalanced);
        let took = spent.as_secs_f64() / self.rtt.as_secs_f64();
        let round_trips = took.round();
        ensure!(
            (took - round_trips).abs() <= MOST_OFF,
            "the host is too busy to count round trips: a step took {took:.2} of them"
        );
        Ok(Cost { round_trips, up_bytes: report.up.forwarded_bytes, down_bytes: report.down.forwarded_bytes })
    }
}

fn step(what: &str, cost: Cost) -> Step {
    Step { what: what.to_owned(), cost }
}

fn offer(format: &str, compression: &str) -> anyhow::Result<Offer> {
    Ok(Offer { formats: vec![format.parse()?], batched: false, compression: compression.parse()? })
}

/// Stores one event in the relay, before anything is counted: from an address without a link.
async fn publish(relay: &Endpoint) -> anyhow::Result<()> {
    let mut event = Event {
        id: [0; 32],
        pubkey: [0; 32],
        created_at: 1_700_000_000,
        kind: 1,
        tags: Vec::new(),
        content: "first".into(),
        sig: [0; 64],
    };
    corpus::sign_as(&mut event, "handshakes");
    let mut connection = relay.connect(&offer("json", "none")?, &WireLimits::default()).await?;
    send(&mut connection, &ClientMessage::Event(Cow::Borrowed(&event))).await?;
    receive(&mut connection, |message| matches!(message, RelayMessage::Ok { accepted: true, .. })).await
}

async fn send(connection: &mut Connection, message: &ClientMessage<'_>) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    Format::JSON.spec().library.encode_client(message, &mut bytes)?;
    connection.feed(bytes.into()).await?;
    Ok(connection.flush().await?)
}

/// Reads until a message is the one that is waited for.
async fn receive(connection: &mut Connection, is: impl Fn(&RelayMessage<'_>) -> bool) -> anyhow::Result<()> {
    loop {
        let message = connection.next().await.context("the relay closed the connection")??;
        if is(&Format::JSON.spec().library.decode_relay(&message.payload)?) {
            return Ok(());
        }
    }
}
