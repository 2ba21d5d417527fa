//! Which events do clients publish and relays store?
//!
//! A [`Corpus`] is a list of signed events, read once before any clock starts: real ones from a
//! file, or the sample bundled with this repository, which [`generate`] made. Its [`Fingerprint`]
//! shows whether two results measured the same events. Its [`Origin`] separates generated from real
//! events. [`fresh`] makes as many new events of the same shape as a long run needs.
//!
//! Reading does not verify: that takes 50 µs an event and files rarely change. `corpus verify FILE`
//! does it.
//!
//! To add a file format, add a variant to [`FileFormat`] and its reader and writer next to
//! `files/lines.rs`.

mod census;
mod corpus;
mod cut;
mod error;
mod file_format;
mod files;
mod fingerprint;
pub mod fresh;
pub mod generate;
mod invalid;
mod json;
mod keys;
mod origin;
mod random;
pub mod rules;
mod sampler;
mod signing;

pub use census::{Census, Counted, Ids};
pub use corpus::Corpus;
pub use cut::{Cut, find_cut};
pub use error::{CorpusError, RecordError};
pub use file_format::{FileFormat, MAX_BATCH_BYTES, MAX_RECORD_BYTES};
pub use files::{EventWriter, Events, write};
pub use fingerprint::Fingerprint;
pub use invalid::{Invalid, Skipped};
pub use json::json;
pub use keys::sign_as;
pub use origin::Origin;
pub use random::{Random, Weighted};
pub use rules::Rules;
pub use sampler::Reservoir;
pub use signing::{Keys, KeysError, MOST_WORK_BITS, REHEARSAL_KEYS, Signing};
