//! Names of the latencies that a run records and a scenario may bound.

/// Latencies that are recorded, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timing {
    /// From the instant an event or request was due to its delivery: what a user waits.
    Response,
    /// From the instant an event or request was sent to its delivery.
    Service,
    /// From the instant an event or session was due to the instant it was sent: what the generator
    /// added.
    SendLag,
    /// From the instant an event was due to its OK.
    PublishOk,
    /// From the instant a request was due to its EOSE.
    Eose,
    /// From the instant a step was due to its first event.
    FirstEvent,
    /// From the instant a step was due to its fiftieth event: a first screen.
    FiftiethEvent,
    /// From the instant a session was due to the last EOSE of its last step, including its
    /// handshake if it connects.
    Session,
    /// From the first byte of TCP to the end of the WebSocket handshake.
    Handshake,
    /// From sending AUTH to its OK.
    Auth,
    /// From the instant of a recorded message to the instant it was sent, where the relay's answer
    /// that it waits for came later than in the recording.
    Waited,
    /// From the instant a reconciliation (NIP-77) was due to the instant its difference was known.
    Reconcile,
}

// In the order of every table.
codecs::names! {
    Timing, "timing":
    Response = "response",
    Service = "service",
    SendLag = "send_lag",
    PublishOk = "publish_ok",
    Eose = "eose",
    FirstEvent = "first_event",
    FiftiethEvent = "fiftieth_event",
    Session = "session",
    Handshake = "handshake",
    Auth = "auth",
    Waited = "waited",
    Reconcile = "reconcile",
}
