//! Names from closed lists.

/// A name that is not in a closed list; the message lists the known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {name:?}; known: {known}")]
pub struct UnknownName {
    what: String,
    name: String,
    known: String,
}

impl UnknownName {
    /// Says that `name` is no `what`, and which ones are.
    pub fn new<S: AsRef<str>>(what: &str, name: &str, known: impl IntoIterator<Item = S>) -> Self {
        let known: Vec<_> = known.into_iter().map(|k| k.as_ref().to_owned()).collect();
        UnknownName { what: what.to_owned(), name: name.to_owned(), known: known.join(" ") }
    }
}
