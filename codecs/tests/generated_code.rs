//! The committed code in `src/formats/generated` is what today's compilers make of `schema/`.
//!
//! protox and prost-build compile the protobuf schemas in pure Rust, so nobody needs `protoc`.
//! Cap'n Proto has only its own compiler: where `capnp` is missing (Debian: `apt install
//! capnproto`), the hash of the schema in the first line of the committed file must do. To refresh
//! after a change of a schema: `UPDATE_EXPECT=1 cargo test -p codecs --test generated_code`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use codecs::hex;
use expect_test::expect_file;
use sha2::{Digest, Sha256};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn protobuf_code_follows_its_schema() {
    let schema = Path::new(CRATE).join("schema");
    let out = scratch("prost");
    for package in ["nostr", "nostr_binary", "nostr_compact"] {
        let descriptors =
            protox::compile([format!("{package}.proto")], [&schema]).expect("the schema is valid protobuf");
        prost_build::Config::new()
            .out_dir(&out)
            .compile_fds(descriptors)
            .expect("prost generates from a valid schema");
        let fresh = fs::read_to_string(out.join(format!("{package}.rs"))).expect("prost wrote its file");
        compare(&fresh, &format!("{package}.rs"));
    }
}

#[test]
fn capnp_code_follows_its_schema() {
    let schema = Path::new(CRATE).join("schema");
    let text = fs::read(schema.join("nostr.capnp")).expect("the schema is in the repository");
    let header = format!("// SHA-256 of schema/nostr.capnp: {}\n", hex::encode(&Sha256::digest(text)));
    if Command::new("capnp").arg("--version").output().is_ok() {
        let out = scratch("capnp");
        capnpc::CompilerCommand::new()
            .src_prefix(&schema)
            .file(schema.join("nostr.capnp"))
            .no_standard_import()
            .default_parent_module(["formats", "generated"].map(str::to_owned).to_vec())
            .output_path(&out)
            .run()
            .expect("the schema is valid");
        let code = fs::read_to_string(out.join("nostr_capnp.rs")).expect("capnpc wrote its file");
        // Another version of the compiler writes the same code under another name.
        let code: String =
            code.split_inclusive('\n').filter(|line| !line.starts_with("// capnp binary version")).collect();
        compare(&(header + &code), "nostr_capnp.rs");
    } else {
        assert!(
            committed("nostr_capnp.rs").is_some_and(|code| code.starts_with(&header)),
            "schema/nostr.capnp is not the one that src/formats/generated/nostr_capnp.rs was made from; install \
             capnp (Debian: apt install capnproto) and refresh it with: \
             UPDATE_EXPECT=1 cargo test -p codecs --test generated_code"
        );
    }
}

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).expect("the target directory is writable");
    dir
}

fn compare(fresh: &str, name: &str) {
    expect_file![path(name)].assert_eq(fresh);
}

fn committed(name: &str) -> Option<String> {
    fs::read_to_string(path(name)).ok()
}

fn path(name: &str) -> PathBuf {
    Path::new(CRATE).join("src/formats/generated").join(name)
}
