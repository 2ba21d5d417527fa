//! The format under test, by the environment: one program serves them all.

use std::{env, sync::LazyLock};

use codecs::Format;

/// The format that the variable FORMAT names.
pub static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    let Ok(name) = env::var("FORMAT") else { return Format::JSON };
    name.parse().unwrap_or_else(|error| panic!("FORMAT: {error}"))
});
