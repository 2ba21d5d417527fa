// Makes crates/report/src/generated/page.html from src/ and the packages of package-lock.json: one file with
// its style and script, in which Rust puts a title and data. It is tracked, so that reports need no npm.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const MOST_BYTES = 400_000;

async function bundle(entry) {
  return build({
    entryPoints: [path(entry)],
    bundle: true,
    format: "iife",
    target: "es2022",
    minify: true,
    charset: "utf8",
    metafile: true,
    write: false,
    absWorkingDir: path("."),
  });
}

/** The licences of what is bundled, each text once with the packages that it is of. */
function licences({ inputs }) {
  const found = Object.keys(inputs).map((input) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1]);
  const texts = new Map();
  for (const name of [...new Set(found.filter(Boolean))].sort()) {
    const folder = path(`node_modules/${name}`);
    const file = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
    if (!file) throw new Error(`${name} has no licence file: add its text here`);
    const lines = readFileSync(`${folder}/${file}`, "utf8").split("\n").map((line) => line.trim());
    const holders = lines.filter((line) => /^Copyright /.test(line));
    const text = lines.filter((line) => !holders.includes(line) && !/ License$/.test(line)).join(" ");
    const key = text.replace(/\s+/g, " ").trim();
    const { version } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    texts.set(key, [...(texts.get(key) ?? []), `${name} ${version}. ${holders.join(" ")}`]);
  }
  const parts = [...texts].map(([text, names]) => `${names.join("\n")}\n\n${text}`);
  return `\n${parts.join("\n\n").replaceAll("--", "- -")}\n`;
}

const [script, style] = await Promise.all([bundle("src/main.ts"), bundle("src/page.css")]);
const [js, css] = [script, style].map(({ outputFiles }) => outputFiles[0].text.trim());
if (/<\/script|<!--/i.test(js)) throw new Error("the script would end its element");
const hash = createHash("sha256").update(js).digest("base64");
const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-${hash}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<!--${licences(script.metafile)}-->
<style>${css}</style>
</head>
<body>
<main id="page"><noscript>This page needs JavaScript. summary.md beside the result has its tables as text.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script>${js}</script>
</body>
</html>
`;
if (page.length > MOST_BYTES) throw new Error(`the page has ${page.length} bytes, more than ${MOST_BYTES}`);
const out = path("../../crates/report/src/generated/page.html");
mkdirSync(dirname(out), { recursive: true });
writeFileSync(out, page);
console.log(`page.html ${page.length} bytes`);
