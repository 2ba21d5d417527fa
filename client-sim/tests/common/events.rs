//! Events for plans that a debug build plays.

use std::{path::Path, sync::LazyLock};

use codecs::{Event, KindClass};
use corpus::Corpus;

static FEW: LazyLock<Vec<Event<'static>>> = LazyLock::new(|| {
    let mut events = Corpus::bundled().events;
    let mut lists = 0;
    events.retain(|event| {
        lists += usize::from(event.kind == 3);
        event.class() != KindClass::Ephemeral && (event.kind != 3 || lists <= 5)
    });
    events.truncate(150);
    events
});

/// Writes 150 bundled events of all kinds that relays keep, few of them long lists.
pub(crate) fn write_few(file: &Path) {
    corpus::write(file, &FEW).unwrap();
}
