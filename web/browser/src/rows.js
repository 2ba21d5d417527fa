// The rows of the tables, as data: compare reads them from dist/rows.json, the page makes decoders of them.

/** The function `make` of `file` returns the decoder of the format that the name begins with. */
const row = (name, implementation, file, make, ...args) => ({
  name,
  format: name.split(":")[0],
  implementation,
  compression: "none",
  input: "bytes",
  source: { file, make, args },
});
const library = (name, file, make, ...args) => row(name, "library", `libraries/${file}.js`, make, ...args);
/** A message under relay-sim's zstd layer, which no browser undoes. */
const zstd = (format, make) => ({ ...library(`${format}:fzstd`, "fzstd", make), compression: "zstd" });
/** A reader by hand, of a format without a library. */
const tuned = (format, make) => row(`${format}:tuned`, "tuned", "tuned.js", make);

/** The first of a format also reads messages, for the part end-to-end. */
export const ROWS = [
  // The first is what every ratio refers to.
  { ...row("json", "library", "engine.js", "json"), input: "text" },
  row("json:bytes", "library", "engine.js", "jsonBytes"),
  zstd("json", "zstdJson"),
  library("cbor-schemaless:cbor-x", "cbor-x", "cborX", "schemaless"),
  library("cbor-packed:cbor-x", "cbor-x", "cborX", "packed"),
  library("cbor-intkey:cbor-x", "cbor-x", "cborX", "intkey"),
  library("proto-string:protobufjs", "protobufjs-string", "protobufJsString"),
  library("proto-binary:protobufjs", "protobufjs-binary", "protobufJsBinary"),
  library("capnp:capnp-es", "capnp-es", "capnpEs"),
  tuned("dannypack", "tunedDannypack"),
  zstd("dannypack", "zstdDannypack"),
  tuned("notepack", "tunedNotepack"),
  library("msgpack:msgpackr", "msgpackr", "msgpackR"),
  tuned("leaner", "tunedLeaner"),
  { ...row("nson", "library", "engine.js", "nson"), input: "text" },
];

/** What an app does with an event besides decoding it. */
const task = (name, make) => ({ ...row(name, "task", "tasks.js", make), format: "json", input: "text" });
export const TASKS = [task("verify:noble", "verifyByNoble"), task("verify:nostr-wasm", "verifyByWasm"), task("render", "render")];
