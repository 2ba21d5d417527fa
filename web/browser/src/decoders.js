// What makes the decoders of rows.js, by name.

export * from "./engine.js";
export * from "./tuned.js";
export * from "./tasks.js";
export * from "./libraries/capnp-es.js";
export * from "./libraries/cbor-x.js";
export * from "./libraries/fzstd.js";
export * from "./libraries/msgpackr.js";
export * from "./libraries/protobufjs-binary.js";
export * from "./libraries/protobufjs-string.js";
