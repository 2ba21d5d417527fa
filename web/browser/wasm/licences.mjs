// Prints the licences of the crates that the modules are made of.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

/** Those that say MIT or Apache-2.0 without the text, by whose text stands for it. */
const WITHOUT_TEXT = {
  notepack: ["hex", "Copyright (c) the authors of notepack"],
  flatbuffers: ["ciborium", "Copyright Google Inc."],
  std: ["hex", "Copyright (c) the contributors of the Rust project"],
};

const TARGET = "wasm32-unknown-unknown";
const FOLDER = fileURLToPath(new URL(".", import.meta.url));
const output = (program, ...args) => execFileSync(program, args, { cwd: FOLDER, encoding: "utf8", maxBuffer: 1 << 26 });

const metadata = output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET);
const { packages } = JSON.parse(metadata);
/** What is linked, each as `name vVERSION`. */
const tree = output("cargo", "tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", "--target", TARGET);
const linked = new Set(tree.split("\n").map((line) => line.split(" ").slice(0, 2).join(" ")));

function textOf(name) {
  const [other, holder] = WITHOUT_TEXT[name] ?? [name];
  if (holder) return `${holder}\n\n${textOf(other).replace(/^Copyright.*$/m, "").trim()}`;
  const folder = dirname(packages.find((one) => one.name === name).manifest_path);
  const file = ["LICENSE-MIT", "LICENSE"].find((file) => existsSync(`${folder}/${file}`));
  if (!file) throw new Error(`${name} has no licence file among ${readdirSync(folder)}: add its text to licences.mjs`);
  return readFileSync(`${folder}/${file}`, "utf8").replaceAll("\r", "").trim();
}

const crates = packages.filter(({ name, version, source }) => source && linked.has(`${name} v${version}`));
crates.push({ name: "std", version: output("rustc", "--version").split(" ")[1], license: "MIT OR Apache-2.0" });
/** Crates with the same text share it. */
const headsByText = new Map();
for (const { name, version, license } of crates.sort((one, other) => (one.name < other.name ? -1 : 1))) {
  const text = textOf(name);
  headsByText.set(text, [...(headsByText.get(text) ?? []), `${name} ${version}: ${license}`]);
}
const parts = [...headsByText].map(([text, heads]) => `${heads.join("\n")}\n\n${text}\n`);
console.log(parts.join(`\n${"-".repeat(72)}\n\n`));
