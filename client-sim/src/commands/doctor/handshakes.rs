//! Formats, compressions and batches that the relay grants, one handshake an offer.

use std::time::Duration;

use anyhow::{bail, ensure};
use codecs::Format;
use corpus::Keys;
use tokio::time::{Instant, timeout_at};
use wire::{Compression, Connection, Endpoint, Offer, Token, WireLimits};

use super::{
    answers::Handshake,
    talk::{Answer, Peer, Talk, nothing},
};

/// Handshakes until what is offered is what is granted: a relay may narrow each of two directions.
const TRIES: usize = 3;

/// Time for the first answer in the agreed format.
const PATIENCE: Duration = Duration::from_secs(5);

/// Offers every format with every compression, and with batches, as far as there is time.
pub(super) async fn all(
    relay: &Endpoint,
    (formats, compressions): (&[Format], &[Compression]),
    tokens: &[String],
    time: Duration,
) -> Vec<Handshake> {
    let (mut found, deadline) = (Vec::new(), Instant::now() + time);
    for format in formats {
        let plain = compressions.iter().map(|compression| (*compression, false));
        for (compression, batched) in plain.chain([(Compression::None, true)]) {
            let mut granted = match timeout_at(deadline, one(relay, *format, compression, batched)).await {
                Ok(granted) => granted.map_err(|error| format!("{error:#}")),
                Err(_) => Err(format!("not known, because handshakes took more than {} s", time.as_secs())),
            };
            let token = Token { format: *format, batched, ..Token::JSON }.to_string();
            if batched && granted.is_ok() && !tokens.contains(&token) {
                // Such a relay would send single events under the name of batches.
                granted = Err(format!("it echoes {token}, which its NIP-11 document does not name"));
            }
            let (format, compression) = (format.name().to_owned(), compression.label());
            found.push(Handshake { format, compression, batched, granted });
        }
    }
    found
}

/// The label of the compression that the relay grants, where it grants the rest of the offer.
async fn one(
    relay: &Endpoint,
    format: Format,
    mut compression: Compression,
    batched: bool,
) -> anyhow::Result<String> {
    let is_deflate = |compression: Compression| matches!(compression, Compression::Deflate(_));
    for _ in 0..TRIES {
        let offer = Offer { formats: vec![format], batched, compression };
        let connection = relay.connect(&offer, &WireLimits::default()).await?;
        let agreement = connection.agreement().clone();
        ensure!(agreement.format == format, "it agreed on {}", agreement.format);
        ensure!(agreement.batched == batched, "it does not batch events");
        let agreed = agreement.compression;
        let deflates = is_deflate(agreed) && is_deflate(compression);
        ensure!(
            deflates || agreed.name() == compression.name(),
            "it agreed on compression {}",
            agreed.name()
        );
        speaks(relay, connection).await?;
        if !deflates || agreed.label() == compression.label() {
            return Ok(agreed.label());
        }
        compression = agreed;
    }
    bail!("its answer differs from offer to offer")
}

/// Asks one request, and leaves: a server that echoes any subprotocol token may know none of them.
///
/// # Errors
/// When the relay does not answer in the format of the connection.
pub(crate) async fn speaks(relay: &Endpoint, connection: Connection) -> anyhow::Result<()> {
    let peer = Peer::new(relay.clone(), (Keys::derived("", 1), 0), PATIENCE);
    let mut talk = Talk::over(&peer, connection);
    let answer = talk.request(nothing()).await;
    talk.close().await;
    match answer {
        Answer::Silent => bail!("it does not answer a request in this format"),
        Answer::Ended(why) => bail!("the connection ended before an answer in this format: {why}"),
        _ => Ok(()),
    }
}
