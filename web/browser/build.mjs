// Makes dist/ from src/ and the packages of package-lock.json: the page's script, the rows with the
// size of each decoder, and the licences of what is bundled.

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { gzipSync } from "fflate";

const here = new URL(".", import.meta.url);
const path = (name) => fileURLToPath(new URL(name, here));

function write(name, content) {
  mkdirSync(dirname(path(name)), { recursive: true });
  writeFileSync(path(name), content);
}

const OPTIONS = { bundle: true, format: "iife", target: "es2022", minify: true, write: false, absWorkingDir: path(".") };

/** The packages behind a bundle's inputs. */
function packagesOf(metafile) {
  const names = Object.keys(metafile.inputs).map((input) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1]);
  return [...new Set(names.filter(Boolean))].sort();
}

const manifest = (name) => JSON.parse(readFileSync(path(`node_modules/${name}/package.json`), "utf8"));

/** The text of a package's licence, which MIT, ISC, BSD and Apache ask to go with the code. */
function licenceOf(name) {
  const folder = path(`node_modules/${name}`);
  const file = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
  if (file) return readFileSync(`${folder}/${file}`, "utf8").trim();
  if (name === "nostr-wasm") {
    // It says MIT without the text, as does libsecp256k1 in it.
    const holders = "Copyright (c) the authors of nostr-wasm; of libsecp256k1, 2013 Pieter Wuille";
    return licenceOf("cbor-x").replace(/^.*Copyright.*$/m, holders);
  }
  throw new Error(`${name} has no licence file: add its text here`);
}

function licences(names) {
  const parts = names.map((name) => {
    const { version, license } = manifest(name);
    return `${name} ${version}: ${license}\n\n${licenceOf(name)}\n`;
  });
  return `What page.js contains besides this project's code.\n\n${parts.join(`\n${"-".repeat(72)}\n\n`)}`;
}

/** How large the script is that a page needs for one row alone. */
async function gzipBytesOf({ source: { file, make, args } }) {
  const contents = `import { ${make} } from "./src/${file}"; globalThis.made = ${make}(...${JSON.stringify(args)});`;
  const { outputFiles } = await build({ ...OPTIONS, stdin: { contents, resolveDir: path(".") } });
  return gzipSync(outputFiles[0].contents, { level: 9, mtime: 0 }).length;
}

const page = await build({
  ...OPTIONS,
  entryPoints: ["src/page.js"],
  legalComments: "eof",
  metafile: true,
});
const packages = packagesOf(page.metafile);
write("dist/page.js", page.outputFiles[0].contents);
write("dist/LICENSES.txt", licences(packages));

const { ROWS, TASKS } = await import("./src/rows.js");
const sized = async (row) => {
  const { name, format, compression } = row;
  return { name, format, compression, script_gzip_bytes: await gzipBytesOf(row) };
};
const rows = {
  libraries: Object.fromEntries(packages.map((name) => [name, manifest(name).version])),
  decoders: await Promise.all(ROWS.map(sized)),
  tasks: await Promise.all(TASKS.map(sized)),
};
write("dist/rows.json", `${JSON.stringify(rows, null, 1)}\n`);
console.log(`page.js ${page.outputFiles[0].contents.length} bytes, ${packages.length} packages`);
