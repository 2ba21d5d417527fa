//! What a page in a browser spent on the events of a block.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AddUp;

/// A page of `compare browser`. The CPU time of its renderer and of the browser's network process is
/// [`crate::RunRecord::client_cpu`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageRecord {
    /// CPU of the renderer's main thread, by the kernel, in nanoseconds.
    pub main_ns: Option<u64>,
    /// Time of the step by the page's clock, in nanoseconds.
    pub wall_ns: u64,
    /// The first events of a page that had decoded none; absent over WebSockets, and where the page's
    /// clock is too coarse for them.
    pub first: Option<FirstEvents>,
    /// The JavaScript heap after a collection, in bytes, without array buffers, memory of WebAssembly
    /// and text that the browser keeps outside of it; absent where it cannot be read.
    pub heap_bytes: Option<u64>,
    /// The script that a page needs for this row alone, minified, under gzip, in bytes.
    pub script_gzip_bytes: u64,
}

/// Events that a page decodes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FirstEvents {
    /// How many.
    pub events: u64,
    /// Their time by the page's clock, in nanoseconds; never zero.
    pub ns: u64,
}

crate::sums! {
    FirstEvents { events, ns }
}

impl AddUp for PageRecord {
    fn add_up(&mut self, other: &Self) {
        self.main_ns.add_up(&other.main_ns);
        self.wall_ns.add_up(&other.wall_ns);
        self.heap_bytes.add_up(&other.heap_bytes);
        self.script_gzip_bytes.add_up(&other.script_gzip_bytes);
        // One block whose clock was too coarse takes nothing from the others.
        if let Some(first) = &other.first {
            self.first.get_or_insert_default().add_up(first);
        }
    }
}
