//! The question and the blocks of `compare browser`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, Role};

/// `client` of what `compare browser --serve` measured.
pub const DEVICE: &str = "device";

/// Time that a page in a browser spends on events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Browser {
    /// The run as asked for.
    pub config: BrowserConfig,
    /// The browser.
    pub software: BrowserSoftware,
    /// The packages in the page's script, with their versions.
    pub libraries: BTreeMap<String, String>,
    /// The events by set.
    pub events: Vec<EventSet>,
    /// The cells, in the order of every table.
    pub cells: Vec<BrowserCell>,
    /// Parts asked for that could not be measured, and why.
    #[serde(default)]
    pub not_measured: Vec<String>,
}

impl Browser {
    /// Whether CPU times say something: a device has none, and over an emulated link they say what
    /// the emulator costs (docs/links.md).
    pub(crate) fn has_cpu(&self) -> bool {
        !self.software.is_device() && self.config.link.is_none()
    }
}

/// The question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BrowserConfig {
    /// Parts that are measured.
    pub parts: Vec<Part>,
    /// Wire formats.
    pub formats: Vec<String>,
    /// Rounds: in each, every cell once.
    pub rounds: u32,
    /// Least time of a measured step.
    pub step_ms: u32,
    /// Decides the order.
    pub seed: u64,
    /// The corpus file, when another than the bundled one.
    pub corpus: Option<String>,
    /// Whether what in it is no valid event was left out.
    #[serde(default)]
    pub skip_invalid: bool,
    /// The emulated access link between page and relay, with its parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// A part of a page's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Bytes or text to the object that an app uses.
    Decode,
    /// A REQ for stored events to its EOSE, over a WebSocket.
    EndToEnd,
    /// Events as they are published, on a subscription after its EOSE.
    Live,
    /// Decoding beside verification and rendering.
    InProportion,
}

impl Part {
    /// Every part, in the order of reports.
    pub const ALL: [Part; 4] = [Part::Decode, Part::EndToEnd, Part::Live, Part::InProportion];

    /// Its name in flags and in names of cells.
    pub fn name(self) -> &'static str {
        match self {
            Part::Decode => "decode",
            Part::EndToEnd => "end-to-end",
            Part::Live => "live",
            Part::InProportion => "in-proportion",
        }
    }

    /// Whether its cells have a compression, batches and messages.
    pub fn is_over_sockets(self) -> bool {
        matches!(self, Part::EndToEnd | Part::Live)
    }
}

/// The browser and how it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BrowserSoftware {
    /// `client` of every cell: `browser`, headless on the host; or `device`, which a person opened
    /// the page on, and of which only its own clock was read.
    pub client: String,
    /// Such as `Chrome/156.0.8078.79`; of a device what its page is told.
    pub product: String,
    /// V8's version; of a device `unknown`.
    pub v8: String,
    /// The browser's own name for itself.
    pub user_agent: String,
    /// Command-line flags, without folders.
    pub flags: Vec<String>,
    /// Whether the renderer is known to have run in Chromium's sandbox, which root cannot have.
    pub sandbox: bool,
    /// Whether the engine has `Uint8Array.prototype.toHex`; rows with hex `native` use a table
    /// otherwise.
    pub has_to_hex: bool,
    /// By how much the page's clock moves at a time.
    #[serde(default)]
    pub clock_ns: Option<u64>,
}

impl BrowserSoftware {
    /// Whether a person opened the page on a device, whose CPU time cannot be read.
    pub(crate) fn is_device(&self) -> bool {
        self.client == DEVICE
    }
}

/// Events of the corpus that are decoded together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventSet {
    /// `all`, which every decoder is checked on, `mixed` or `lists`.
    pub name: String,
    /// How many.
    pub events: u64,
    /// Bytes of their JSON.
    pub json_bytes: u64,
    /// Events of the corpus that are left out, because a format of the run cannot hold them.
    pub set_aside: u64,
}

/// One row of a table and all its blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BrowserCell {
    /// The cell's name.
    pub id: String,
    pub part: Part,
    /// The set of events.
    pub events: String,
    /// Its part in comparisons.
    pub role: Role,
    /// The decoder, or the task beside decoding.
    pub row: String,
    /// The wire format; of tasks `json`.
    pub format: String,
    /// `library`, `tuned`, `wasm` (`tuned` in the first results with such rows), `head` (the id
    /// alone), or of tasks `task`.
    pub implementation: String,
    /// The package that decodes, where it is one.
    pub library: Option<String>,
    /// `native` or `table`.
    pub hex: String,
    /// The compression, over a WebSocket or of what is decoded.
    pub compression: String,
    /// Whether the relay may put several events into one message.
    pub batched: bool,
    /// Bytes of the set's events as a decoder is given them, text as UTF-8; absent elsewhere.
    #[serde(default)]
    pub input_bytes: Option<u64>,
    /// The script that a page needs for this row alone, minified.
    pub script_bytes: u64,
    /// The same under gzip, level 9.
    pub script_gzip_bytes: u64,
    /// In the order they ran: one a round, several of an anchor.
    pub blocks: Vec<BrowserBlock>,
}

/// One cell measured once, in a fresh page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BrowserBlock {
    /// The round, from 0.
    pub round: u32,
    /// The place in the round, from 0.
    pub position: u32,
    /// When it began, from the start of the comparison.
    pub started_after_ns: u64,
    /// How long it took, the page's start included.
    pub process_ns: u64,
    /// The first events of a page that has decoded none; absent end to end.
    pub cold: Option<BrowserStep>,
    /// After a warm-up.
    pub warm: Option<BrowserStep>,
    /// The JavaScript heap after garbage collection, without array buffers, text that the browser
    /// keeps outside of it, and memory of WebAssembly.
    pub heap_bytes: Option<u64>,
    /// The most memory that the renderer's process had.
    pub peak_bytes: Option<u64>,
    /// Bytes of IP packets that an emulated link carried to the page, with the headers of IP and
    /// TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes: Option<u64>,
    /// Why the block does not count; empty when it does.
    pub why: Vec<String>,
}

/// Time of one step, an empty step subtracted. Of a device only `wall_ns` is measured, the CPU
/// times are zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BrowserStep {
    /// Events that were decoded, verified or rendered.
    pub events: u64,
    /// Messages that they came in; zero without a WebSocket.
    #[serde(default)]
    pub messages: u64,
    /// CPU of the renderer's main thread, by the kernel.
    pub main_ns: u64,
    /// CPU of all threads of the renderer, by the kernel.
    pub renderer_ns: u64,
    /// CPU of the browser's network process, by the kernel.
    pub network_ns: u64,
    /// Time by the page's clock.
    pub wall_ns: u64,
    /// CPU of the renderer's main thread by the browser's own count (`Performance.getMetrics`).
    pub inside_ns: u64,
}

impl BrowserConfig {
    /// The settings that a report states of every result.
    pub fn as_run(&self) -> Config {
        Config {
            scenarios: vec!["browser".to_owned()],
            profile: "browser".to_owned(),
            rounds: self.rounds,
            seconds: self.step_ms.div_ceil(1_000),
            seed: self.seed,
            corpus: self.corpus.clone(),
            ..Config::default()
        }
    }
}
