// The rows of the tables, as data: compare reads them from dist/rows.json, the page makes decoders of them.

/** The function `make` of `file` returns the decoder of the format that the name begins with. */
const row = (name, implementation, file, make, ...args) => ({
  name,
  format: name.split(":")[0],
  implementation,
  hex: "native",
  compression: "none",
  input: "bytes",
  source: { file, make, args },
});
const library = (name, file, make, ...args) => row(name, "library", `libraries/${file}.js`, make, ...args);
/** A message under relay-sim's zstd layer, which no browser undoes. */
const zstd = (format, make) => ({ ...library(`${format}:fzstd`, "fzstd", make), compression: "zstd" });
const tuned = (format, make) => row(`${format}:tuned`, "tuned", "tuned.js", make);
const head = (format, make) => row(`${format}:head`, "head", "tuned.js", make);
const table = (row) => ({ ...row, name: `${row.name}:table-hex`, hex: "table" });

const CBOR_X = library("cbor-packed:cbor-x", "cbor-x", "cborX", "packed");
const DANNYPACK = tuned("dannypack", "tunedDannypack");

/** The first of a format also reads messages, for the part end-to-end. */
export const ROWS = [
  // The first is what every ratio refers to.
  { ...row("json", "library", "engine.js", "json"), input: "text" },
  row("json:bytes", "library", "engine.js", "jsonBytes"),
  zstd("json", "zstdJson"),
  library("cbor-schemaless:cbor-x", "cbor-x", "cborX", "schemaless"),
  CBOR_X,
  table(CBOR_X),
  tuned("cbor-packed", "tunedCborPacked"),
  library("cbor-intkey:cbor-x", "cbor-x", "cborX", "intkey"),
  library("proto-string:protobufjs", "protobufjs-string", "protobufJsString"),
  library("proto-binary:protobufjs", "protobufjs-binary", "protobufJsBinary"),
  tuned("capnp", "tunedCapnp"),
  library("capnp:capnp-es", "capnp-es", "capnpEs"),
  DANNYPACK,
  table(DANNYPACK),
  zstd("dannypack", "zstdDannypack"),
  head("dannypack", "headOfDannypack"),
  tuned("notepack", "tunedNotepack"),
  head("notepack", "headOfNotepack"),
  library("msgpack:msgpackr", "msgpackr", "msgpackR"),
  tuned("leaner", "tunedLeaner"),
  { ...row("nson", "library", "engine.js", "nson"), input: "text" },
];

/** What an app does with an event besides decoding it. */
const task = (name, make) => ({ ...row(name, "task", "tasks.js", make), format: "json", input: "text" });
export const TASKS = [task("verify:noble", "verifyByNoble"), task("verify:nostr-wasm", "verifyByWasm"), task("render", "render")];
