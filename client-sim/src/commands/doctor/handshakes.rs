//! Formats, compressions and batches that the relay grants, one handshake an offer.

use std::time::Duration;

use codecs::{ClientMessage, Filter, Format, Implementation};
use tokio::time::{Instant, timeout_at};
use wire::{CloseCode, Compression, Connection, Layer, Offer, Token, WireLimits};

use super::{answers::Handshake, talk::Peer};
use crate::sockets::dial::{Dialer, Target};
use client::meaning::{Interpreter, Meaning};

/// Handshakes until what is offered is what is granted: a relay may narrow each of two directions.
const TRIES: usize = 3;

/// How long the relay may take for its first answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Every format with every compression, to be offered.
#[derive(Debug, Clone)]
pub(super) struct Offers {
    pub(super) formats: Vec<Format>,
    pub(super) compressions: Vec<Compression>,
    /// Whether to offer each format with batches, too.
    pub(super) batched: bool,
}

/// Makes every offer.
pub(super) async fn all(peer: &Peer, offers: &Offers, tokens: &[String]) -> Vec<Handshake> {
    let mut found = Vec::new();
    for format in &offers.formats {
        for compression in &offers.compressions {
            found.push(one(peer, *format, *compression, false).await);
        }
        if offers.batched {
            let token = Token { format: *format, batched: true, layer: Layer::None }.to_string();
            let mut batched = one(peer, *format, Compression::None, true).await;
            if batched.granted.is_ok() && !tokens.contains(&token) {
                // Such a relay would send single events under the name of batches.
                batched.granted = Err(format!("it echoes {token}, which its NIP-11 document does not name"));
            }
            found.push(batched);
        }
    }
    found
}

async fn one(peer: &Peer, format: Format, compression: Compression, batched: bool) -> Handshake {
    let label = compression.label();
    let mut offered = compression;
    let mut granted = Err("its answer differs from offer to offer".to_owned());
    for _ in 0..TRIES {
        let target = Target {
            relay: peer.relay.clone(),
            offer: Offer { formats: vec![format], batched, compression: offered },
            limits: WireLimits::default(),
            implementation: Implementation::Library,
            over_links: false,
        };
        match agreed(target).await {
            Ok(Compression::Deflate(params)) if Compression::Deflate(params).label() != offered.label() => {
                offered = Compression::Deflate(params);
            }
            outcome => {
                granted = outcome.map(|compression| compression.label());
                break;
            }
        }
    }
    Handshake { format: format.name().to_owned(), compression: label, batched, granted }
}

/// The compression that the relay grants, where it grants the rest of the offer.
async fn agreed(target: Target) -> Result<Compression, String> {
    let dialer = Dialer::new(target, 1);
    let mut connection =
        dialer.dial(0, &dialer.target().offer, None).await.map_err(|error| error.to_string())?;
    let agreement = connection.agreement().clone();
    let offer = &dialer.target().offer;
    let deflate = |compression: Compression| matches!(compression, Compression::Deflate(_));
    let both_deflate = deflate(offer.compression) && deflate(agreement.compression);
    if !offer.formats.contains(&agreement.format) {
        return Err(format!("it agreed on {}", agreement.format));
    }
    if offer.batched != agreement.batched {
        return Err("it does not batch events".to_owned());
    }
    if !both_deflate && offer.compression.name() != agreement.compression.name() {
        return Err(format!("it agreed on compression {}", agreement.compression.name()));
    }
    speaks(&mut connection, offer.formats.first().copied().unwrap_or(Format::JSON)).await?;
    connection.close(CloseCode::Normal, "").await;
    Ok(agreement.compression)
}

/// Asks one request: a server that echoes any subprotocol token may know none of them.
async fn speaks(connection: &mut Connection, format: Format) -> Result<(), String> {
    let codec = format.spec().library;
    let filters = vec![Filter { ids: Some(vec![[0x5a; 32]]), limit: Some(1), ..Filter::default() }];
    let mut bytes = Vec::new();
    let request = ClientMessage::Req { subscription: "doctor".into(), filters };
    codec.encode_client(&request, &mut bytes).map_err(|error| error.to_string())?;
    connection.feed(bytes.into()).await.map_err(|error| error.to_string())?;
    connection.flush().await.map_err(|error| error.to_string())?;
    let interpreter = Interpreter::new(codec);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = timeout_at(deadline, connection.next()).await;
        let answer = answer.map_err(|_| "it does not answer a request in this format".to_owned())?;
        let message = answer.ok_or("it closed the connection")?.map_err(|error| error.to_string())?;
        match interpreter.read(&message.payload) {
            Meaning::Message(_) | Meaning::Extended(_) => return Ok(()),
            // A greeting in the relay's own words proves nothing.
            Meaning::Foreign => {}
            Meaning::Undecodable(_) => {
                return Err("it echoes the subprotocol, but does not speak the format".to_owned());
            }
        }
    }
}
