//! Output of the schema compilers. To refresh: `UPDATE_EXPECT=1 cargo test -p codecs --test
//! generated_code`.

#[rustfmt::skip]
#[allow(unreachable_pub, clippy::all, reason = "prost-build decides how its code looks")]
pub(super) mod nostr;
#[rustfmt::skip]
#[allow(unreachable_pub, clippy::all, reason = "prost-build decides how its code looks")]
pub(super) mod nostr_binary;
#[rustfmt::skip]
#[allow(unreachable_pub, clippy::all, reason = "prost-build decides how its code looks")]
pub(super) mod nostr_compact;
#[rustfmt::skip]
#[allow(unreachable_pub, dead_code, clippy::all, clippy::pedantic, clippy::unwrap_used, reason = "capnpc decides how its code looks")]
pub(super) mod nostr_capnp;
