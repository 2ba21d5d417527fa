//! The committed code in `src/formats/generated` is what today's compilers make of `schema/`.
//!
//! protox and prost-build compile the protobuf schemas in pure Rust, so nobody needs `protoc`.
//! To refresh after a change of a schema: `REFRESH=1 cargo test -p codecs --test generated_code`.

use std::{
    fs,
    path::{Path, PathBuf},
};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn protobuf_code_follows_its_schema() {
    let schema = Path::new(CRATE).join("schema");
    let out = scratch("prost");
    for package in ["nostr", "nostr_binary"] {
        let descriptors =
            protox::compile([format!("{package}.proto")], [&schema]).expect("the schema is valid protobuf");
        prost_build::Config::new()
            .out_dir(&out)
            .compile_fds(descriptors)
            .expect("prost generates from a valid schema");
        compare(&out.join(format!("{package}.rs")), &format!("{package}.rs"));
    }
}

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).expect("the target directory is writable");
    dir
}

fn compare(fresh: &Path, committed: &str) {
    let fresh = fs::read_to_string(fresh).expect("the generator wrote its file");
    let path = Path::new(CRATE).join("src/formats/generated").join(committed);
    if std::env::var_os("REFRESH").is_some() {
        return fs::write(&path, fresh).expect("the source directory is writable");
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|text| text == fresh),
        "src/formats/generated/{committed} is not what its schema gives; \
         refresh it with: REFRESH=1 cargo test -p codecs --test generated_code"
    );
}
