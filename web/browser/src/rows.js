// The rows of the tables, as data: compare reads them from dist/rows.json, the page makes decoders of them.

/** The function `make` of `file` returns the decoder; `library` names the package that it is of. */
const row = (name, format, implementation, library, file, make, ...args) => ({
  name,
  format,
  implementation,
  library,
  hex: "native",
  compression: "none",
  input: "bytes",
  source: { file, make, args },
});
const library = (name, format, library, file, make, ...args) =>
  row(name, format, "library", library, `libraries/${file}.js`, make, ...args);
/** A message under relay-sim's zstd layer, which no browser undoes. */
const zstd = (format, make) => ({ ...library(`${format}:fzstd`, format, "fzstd", "fzstd", make), compression: "zstd" });
const tuned = (format, make) => row(`${format}:tuned`, format, "tuned", null, "tuned.js", make);
const head = (format, make) => row(`${format}:head`, format, "head", null, "tuned.js", make);
/** `codecs` in WebAssembly (wasm/), the same decoder as that of native clients. */
const wasm = (format, make) => row(`${format}:wasm`, format, "wasm", null, "wasm.js", make);
const table = (row) => ({ ...row, name: `${row.name}:table-hex`, hex: "table" });

const CBOR_X = library("cbor-packed:cbor-x", "cbor-packed", "cbor-x", "cbor-x", "cborX", "packed");
const DANNYPACK = tuned("dannypack", "tunedDannypack");

export const ROWS = [
  // The first is what every ratio refers to.
  { ...row("json", "json", "library", null, "engine.js", "json"), input: "text" },
  row("json:bytes", "json", "library", null, "engine.js", "jsonBytes"),
  zstd("json", "zstdJson"),
  library("cbor-schemaless:cbor-x", "cbor-schemaless", "cbor-x", "cbor-x", "cborX", "schemaless"),
  library("cbor-schemaless:cborg", "cbor-schemaless", "cborg", "cborg", "cborg", "schemaless"),
  CBOR_X,
  table(CBOR_X),
  library("cbor-packed:cborg", "cbor-packed", "cborg", "cborg", "cborg", "packed"),
  tuned("cbor-packed", "tunedCborPacked"),
  wasm("cbor-packed", "wasmCborPacked"),
  library("cbor-intkey:cbor-x", "cbor-intkey", "cbor-x", "cbor-x", "cborX", "intkey"),
  library("cbor-intkey:cborg", "cbor-intkey", "cborg", "cborg", "cborg", "intkey"),
  library("proto-string:protobufjs", "proto-string", "protobufjs", "protobufjs-string", "protobufJsString"),
  library("proto-string:protobuf-es", "proto-string", "@bufbuild/protobuf", "protobuf-es", "protobufEs", "nostr"),
  library("proto-binary:protobufjs", "proto-binary", "protobufjs", "protobufjs-binary", "protobufJsBinary"),
  library("proto-binary:protobuf-es", "proto-binary", "@bufbuild/protobuf", "protobuf-es", "protobufEs", "nostr_binary"),
  tuned("proto-binary", "tunedProtoBinary"),
  wasm("proto-binary", "wasmProtoBinary"),
  tuned("capnp", "tunedCapnp"),
  wasm("capnp", "wasmCapnp"),
  library("capnp:capnp-es", "capnp", "capnp-es", "capnp-es", "capnpEs"),
  DANNYPACK,
  table(DANNYPACK),
  wasm("dannypack", "wasmDannypack"),
  zstd("dannypack", "zstdDannypack"),
  head("dannypack", "headOfDannypack"),
  tuned("notepack", "tunedNotepack"),
  wasm("notepack", "wasmNotepack"),
  head("notepack", "headOfNotepack"),
  library("msgpack:@msgpack", "msgpack", "@msgpack/msgpack", "msgpack", "msgpack"),
  library("msgpack:msgpackr", "msgpack", "msgpackr", "msgpackr", "msgpackR"),
  tuned("leaner", "tunedLeaner"),
  { ...row("nson", "nson", "library", null, "engine.js", "nson"), input: "text" },
];

/** What an app does with an event besides decoding it. */
export const TASKS = [
  { name: "verify:noble", library: "@noble/curves", source: { file: "tasks.js", make: "verifyByNoble", args: [] } },
  { name: "verify:nostr-wasm", library: "nostr-wasm", source: { file: "tasks.js", make: "verifyByWasm", args: [] } },
  { name: "render", library: null, source: { file: "tasks.js", make: "render", args: [] } },
];
