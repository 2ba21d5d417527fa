//! Recordings as their readers find them: whole, cut off, damaged and hostile, and under pseudonyms.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod file;
mod pseudonyms;
