// Reads messages of `+zstd-dict2-…` by zstd in WebAssembly (@bokuweb/zstd-wasm on NODE_PATH), in one call each.
// Usage: node read.mjs FOLDER; FOLDER has `dictionary`, and for each message its frames as `N.zst` and its payload as
// `N.txt`.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

const { init, createDCtx, decompressUsingDict } = createRequire(import.meta.url)('@bokuweb/zstd-wasm')
await init()
const folder = process.argv[2]
const dictionary = readFileSync(join(folder, 'dictionary'))
const context = createDCtx()
const names = readdirSync(folder).filter((name) => name.endsWith('.zst'))
for (const name of names) {
  const read = decompressUsingDict(context, readFileSync(join(folder, name)), dictionary)
  assert.deepEqual(Buffer.from(read), readFileSync(join(folder, name.replace('.zst', '.txt'))), name)
}
console.log(names.length)
