//! Events for plans that a debug build plays.

use std::path::Path;

use codecs::KindClass;
use corpus::Corpus;

/// Writes 150 bundled events of all kinds that relays keep, few of them long lists.
pub(crate) fn write_few(file: &Path) {
    let mut events = Corpus::bundled().events;
    let mut lists = 0;
    events.retain(|event| {
        lists += usize::from(event.kind == 3);
        event.class() != KindClass::Ephemeral && (event.kind != 3 || lists <= 5)
    });
    events.truncate(150);
    corpus::write(file, &events).unwrap();
}
