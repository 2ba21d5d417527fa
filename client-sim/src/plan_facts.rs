//! Sums over a plan, known before the run: clients, requests, deliveries, bytes.

use codecs::{ClientMessage, Codec, Format, Implementation, RelayMessage};
use measure::FlowRecord;

use crate::workload::{Task, Workload};

/// Sums over a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanFacts {
    /// The most clients connected at one time.
    pub connections: u64,
    /// Connections made over the whole run.
    pub connections_made: u64,
    /// Requests for stored events.
    pub requests: u64,
    /// Deliveries that answer those requests.
    pub stored_deliveries: u64,
    /// Deliveries to live subscriptions that last as long as the run.
    pub live_deliveries: u64,
    /// Events published.
    pub published: u64,
    /// All requests as JSON messages.
    pub request_json_bytes: u64,
    delivered_json_bytes: u64,
    published_json_bytes: u64,
}

impl PlanFacts {
    /// Adds up a plan.
    pub fn of(workload: &Workload) -> PlanFacts {
        let uses = uses(workload);
        let json =
            Format::JSON.codec(Implementation::Library).expect("JSON has an implementation of its own");
        let mut facts = PlanFacts {
            connections: workload.roles.len() as u64,
            connections_made: connections_made(workload),
            published: workload.publications.len() as u64,
            live_deliveries: workload.fan_out().into_iter().map(u64::from).sum(),
            ..PlanFacts::default()
        };
        let mut buffer = Vec::new();
        for (event, uses) in workload.events.iter().zip(&uses) {
            buffer.clear();
            // `Workload::plan` chose only events that every format encodes.
            json.encode_event(event, &mut buffer).ok();
            facts.delivered_json_bytes += buffer.len() as u64 * (uses.stored + uses.live);
            facts.published_json_bytes += buffer.len() as u64 * u64::from(uses.published);
            facts.stored_deliveries += uses.stored;
        }
        for message in requests(workload) {
            buffer.clear();
            json.encode_client(&message, &mut buffer).ok();
            facts.requests += 1;
            facts.request_json_bytes += buffer.len() as u64;
        }
        facts
    }

    /// Deliveries that are known before the run.
    pub fn deliveries(&self) -> u64 {
        self.stored_deliveries + self.live_deliveries
    }

    /// The mean size in JSON of a delivered event, or of a published one where nothing is
    /// delivered.
    pub fn event_json_bytes(&self) -> Option<f64> {
        let mean = |bytes: u64, count: u64| (count > 0).then(|| bytes as f64 / count as f64);
        mean(self.delivered_json_bytes, self.deliveries())
            .or_else(|| mean(self.published_json_bytes, self.published))
    }
}

/// The messages of a plan and their payload bytes in one format, to the relay and to the clients.
/// Live deliveries to sessions are left out: their number depends on when the stays begin.
pub fn payload(workload: &Workload, codec: &dyn Codec) -> (FlowRecord, FlowRecord) {
    let (mut to_relay, mut to_client) = (FlowRecord::default(), FlowRecord::default());
    let mut buffer = Vec::new();
    let mut add = |flow: &mut FlowRecord, count: u64, encode: &mut dyn FnMut(&mut Vec<u8>)| {
        buffer.clear();
        encode(&mut buffer);
        flow.messages += count;
        flow.payload_bytes += count * buffer.len() as u64;
    };
    for (event, uses) in workload.events.iter().zip(uses(workload)) {
        let deliveries = uses.stored + uses.live;
        if deliveries > 0 {
            let event = std::borrow::Cow::Borrowed(event);
            let message = RelayMessage::Event { subscription: "live-0".into(), event };
            add(&mut to_client, deliveries, &mut |out| drop(codec.encode_relay(&message, out)));
        }
        if uses.published {
            let publish = ClientMessage::Event(std::borrow::Cow::Borrowed(event));
            add(&mut to_relay, 1, &mut |out| drop(codec.encode_client(&publish, out)));
            let ok = RelayMessage::Ok { id: event.id, accepted: true, text: "".into() };
            add(&mut to_client, 1, &mut |out| drop(codec.encode_relay(&ok, out)));
        }
    }
    for request in requests(workload) {
        add(&mut to_relay, 1, &mut |out| drop(codec.encode_client(&request, out)));
        let eose = RelayMessage::Eose { subscription: "s0-0-0".into(), hints: codecs::EoseHints::default() };
        add(&mut to_client, 1, &mut |out| drop(codec.encode_relay(&eose, out)));
        let close = ClientMessage::Close { subscription: "s0-0-0".into() };
        add(&mut to_relay, 1, &mut |out| drop(codec.encode_client(&close, out)));
    }
    (to_relay, to_client)
}

/// How often an event crosses the wire, and why.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    stored: u64,
    live: u64,
    published: bool,
}

fn uses(workload: &Workload) -> Vec<Uses> {
    let mut uses = vec![Uses::default(); workload.events.len()];
    for request in workload.sessions.iter().flat_map(|session| &session.steps).flatten() {
        for event in &request.expected {
            uses[*event as usize].stored += 1;
        }
    }
    for reconciliation in workload.sessions.iter().filter_map(|session| session.reconciliation.as_ref()) {
        for event in &reconciliation.lacks {
            uses[*event as usize].stored += 1;
        }
    }
    for (publication, fan_out) in workload.publications.iter().zip(workload.fan_out()) {
        let uses = &mut uses[publication.event as usize];
        (uses.published, uses.live) = (true, u64::from(fan_out));
    }
    uses
}

fn requests(workload: &Workload) -> impl Iterator<Item = ClientMessage<'static>> {
    let requests = workload.sessions.iter().flat_map(|session| &session.steps).flatten();
    requests.map(|request| ClientMessage::Req {
        subscription: "s0-0-0".into(),
        filters: vec![request.filter.clone()],
    })
}

/// The connections made before the start, and those that sessions make.
pub(crate) fn connections_made(workload: &Workload) -> u64 {
    let before = workload.roles.iter().filter(|role| role.connects_before()).count();
    let again = workload.sessions.iter().filter(|session| {
        let Task::Requester { connect } = workload.roles[session.connection].task else { return false };
        connect != crate::scenario::Connect::Before
    });
    (before + again.count()) as u64
}
