//! Before the clock starts: does the relay really speak what it agreed to, and does it hold the events that the
//! plan asks for?

use std::{borrow::Cow, time::Duration};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use codecs::{ClientMessage, Codec, Event, Filter, Format, RelayMessage};
use tokio::time::timeout;
use wire::{Agreement, CloseCode, Connection, Dictionary};

use crate::{shared::Target, workload::Workload};

/// How long the relay may take for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Events sent ahead of their OK.
const WINDOW: usize = 64;

/// Connects once, checks the agreement with a first message, and puts the stored events into the relay.
///
/// # Errors
/// When the relay cannot be reached, agreed on something else than asked, does not speak what it agreed to, or
/// refuses an event.
pub(crate) async fn prepare(target: &Target, workload: &Workload) -> anyhow::Result<Agreement> {
    let connection = wire::connect_with(&target.url, &target.offer, &target.limits, target.tls.as_ref())
        .await
        .with_context(|| format!("cannot connect to {}", target.url))?;
    let agreement = connection.agreement().clone();
    check_agreement(target, &agreement)?;
    let codec = agreement.format.codec(target.implementation)?;
    let mut link = Link { connection, codec, agreement: agreement.clone(), buffer: Vec::new() };
    link.greet().await?;
    link.store(&workload.events[..workload.stored]).await?;
    link.connection.close(CloseCode::Normal, "").await;
    Ok(agreement)
}

/// A run is labelled with what was asked for, so anything else must not run.
fn check_agreement(target: &Target, agreement: &Agreement) -> anyhow::Result<()> {
    let asked = target.offer.formats.first().copied().unwrap_or(Format::JSON);
    ensure!(
        agreement.format == asked,
        "{} does not speak {asked}: it agreed on {}. Try --format {}, or a relay that speaks {asked}",
        target.url,
        agreement.format,
        agreement.format,
    );
    ensure!(
        agreement.batched == target.offer.batched,
        "{} does not batch events. Leave out --batched, or try a relay that does",
        target.url,
    );
    let (asked, agreed) = (target.offer.compression.name(), agreement.compression.name());
    let dictionary = target.offer.compression.dictionary().or_else(|| Dictionary::bundled(agreement.format));
    let dictionary = match dictionary.filter(|_| asked == "zstd-dict") {
        Some(dictionary) => format!(
            ", or give the relay the same --dictionary: {} is its name here, and the relay's NIP-11 document lists those \
             that it has",
            dictionary.id()
        ),
        None => String::new(),
    };
    ensure!(
        asked == agreed,
        "{} declined compression {asked}: it agreed on {agreed}. Try --compression {agreed}{dictionary}",
        target.url,
    );
    Ok(())
}

/// The connection of the preparation.
struct Link {
    connection: Connection,
    codec: &'static dyn Codec,
    agreement: Agreement,
    buffer: Vec<u8>,
}

impl Link {
    /// Asks for nothing and reads the EOSE: an echoed token proves nothing, a message that decodes does.
    async fn greet(&mut self) -> anyhow::Result<()> {
        let nothing = Filter { kinds: Some(vec![1]), limit: Some(0), ..Filter::default() };
        self.feed(&ClientMessage::Req { subscription: "greeting".into(), filters: vec![nothing] }).await?;
        self.connection.flush().await?;
        loop {
            let payload = self.next().await.context("no answer to the first request")?;
            let format = self.agreement.format;
            let message = self.codec.decode_relay(&payload).with_context(|| match &self.agreement.token {
                Some(token) => format!(
                    "the relay echoed {token}, but its first message is not {format} (an echoed token proves nothing)"
                ),
                None => format!("the relay's first message is not {format}"),
            })?;
            match message {
                RelayMessage::Eose { .. } => break,
                RelayMessage::Closed { text, .. } => bail!("the relay refused the first request: {text}"),
                RelayMessage::Notice { text } => bail!("the relay answered the first request with: {text}"),
                // A challenge is no refusal: a relay that insists answers CLOSED, with its reason.
                _ => {}
            }
        }
        self.feed(&ClientMessage::Close { subscription: "greeting".into() }).await
    }

    /// Publishes the events that the plan asks for later, a window ahead of their OK.
    async fn store(&mut self, events: &[Event<'static>]) -> anyhow::Result<()> {
        let (mut unanswered, mut refused) = (0, Vec::new());
        for event in events {
            if unanswered == WINDOW {
                self.connection.flush().await?;
                while unanswered > WINDOW / 2 {
                    unanswered -= self.read_ok(&mut refused).await?;
                }
            }
            self.feed(&ClientMessage::Event(Cow::Borrowed(event))).await?;
            unanswered += 1;
        }
        self.connection.flush().await?;
        while unanswered > 0 {
            unanswered -= self.read_ok(&mut refused).await?;
        }
        if let Some(first) = refused.first() {
            bail!(
                "the relay refused {} of the {} events that the scenario asks for later; the first with: {first}",
                refused.len(),
                events.len()
            );
        }
        Ok(())
    }

    /// Reads a message; 1 if it was an OK.
    async fn read_ok(&mut self, refused: &mut Vec<String>) -> anyhow::Result<usize> {
        let payload = self.next().await.context("while the relay was given the events to ask for")?;
        match self.codec.decode_relay(&payload)? {
            RelayMessage::Ok { accepted, text, .. } => {
                if !accepted {
                    refused.push(text.into_owned());
                }
                Ok(1)
            }
            RelayMessage::Notice { text } => bail!("the relay said: {text}"),
            _ => Ok(0),
        }
    }

    async fn feed(&mut self, message: &ClientMessage<'_>) -> anyhow::Result<()> {
        self.buffer.clear();
        self.codec.encode_client(message, &mut self.buffer)?;
        Ok(self.connection.feed(Bytes::copy_from_slice(&self.buffer)).await?)
    }

    async fn next(&mut self) -> anyhow::Result<Bytes> {
        let message = timeout(PATIENCE, self.connection.next())
            .await
            .with_context(|| format!("the relay was silent for {} s", PATIENCE.as_secs()))?
            .context("the relay closed the connection")??;
        Ok(message.payload)
    }
}
