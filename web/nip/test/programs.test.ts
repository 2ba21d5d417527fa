/** The other implementation: relay-sim, client-sim and the gateway, by their paths in the environment. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, describe, test } from "node:test";
import { Relay } from "../src/relay.js";
import { delivered, DICTIONARY, OTHER_DICTIONARY, plays, raw, TOKEN, until, VECTORS } from "./support.js";

const [RELAY_SIM, CLIENT_SIM, GATEWAY] = ["RELAY_SIM", "CLIENT_SIM", "GATEWAY"].map((name) => process.env[name]);
/** A reason to skip a test, by the variables that it needs. */
const needs = (...names: string[]) => {
  const missing = names.filter((name) => !process.env[name]);
  return { skip: missing.length > 0 && `no ${missing.join(", no ")} in the environment` };
};

/** Signed, so that a relay that checks takes it. */
const NOTE = JSON.parse(VECTORS.messages.find(({ prefix_bytes }) => prefix_bytes !== null)!.payload)[2];

const ends: (() => unknown)[] = [];
after(() => Promise.all(ends.map((end) => end())));

/** Starts a server, which says its URL and ends with its standard input. */
async function start(program: string, ...args: string[]): Promise<string> {
  const child = spawn(program, ["--listen", "127.0.0.1:0", "--announce", ...args], { stdio: "pipe" });
  ends.push(() => child.kill());
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (said += data));
  const url = () => said.match(/"listening":"(.*?)"/)?.[1];
  await until(() => url() !== undefined || child.exitCode !== null, `the URL of ${program}`);
  assert.ok(url(), said);
  return url()!;
}

const relaySim = () => start(RELAY_SIM!, "--compression", "zstd-dict");
const gateway = (relay: string) => start(GATEWAY!, "--relay", relay);
const ownRelay = async () => {
  const relay = await Relay.listen({ dictionaries: [DICTIONARY] });
  ends.push(() => relay.close());
  return relay.url;
};

/** The client of `src` publishes at `url` and reads, stored and live. */
const ownClientPlays = (url: string, token: string, dictionaries = [DICTIONARY]) =>
  plays(url, NOTE, token, { dictionaries });

/** client-sim plays at `url`; each delivery that it is owed comes once and unchanged. */
async function clientSimPlays(url: string, compression: string) {
  const load = ["--scenario", "note-stream", "--load", "0.05", "--seconds", "1"];
  const wire = ["--format", "json", "--compression", compression];
  const child = spawn(CLIENT_SIM!, ["--url", url, ...load, ...wire, "--quiet", "--json"], { stdio: "pipe" });
  let [record, errors] = ["", ""];
  child.stdout.on("data", (data) => (record += data));
  child.stderr.on("data", (data) => (errors += data));
  const [code] = await once(child, "close");
  // 3: the host was too busy to measure, which changes no count.
  assert.ok(code === 0 || code === 3, errors);
  const { cell, counts, agreement } = JSON.parse(record);
  assert.equal(cell.compression, compression, agreement);
  assert.ok(counts.deliveries_expected > 100, record);
  assert.deepEqual(
    [counts.deliveries, counts.acked, counts.decode_errors, counts.deliveries_altered, counts.deliveries_duplicated],
    [counts.deliveries_expected, counts.planned, 0, 0, 0],
  );
}

describe("relay-sim", () => {
  test("the client speaks with relay-sim", needs("RELAY_SIM"), async () => ownClientPlays(await relaySim(), TOKEN));
  test("the client speaks text with relay-sim, which lacks its dictionary", needs("RELAY_SIM"), async () =>
    ownClientPlays(await relaySim(), "nostr.json", [OTHER_DICTIONARY]));
  test("relay-sim compresses an event once for two subscriptions", needs("RELAY_SIM"), async () => {
    const [one, two] = await delivered(await relaySim(), NOTE);
    assert.equal(one!.length, 2);
    assert.deepEqual(one![1], two![1]);
  });
  test("relay-sim refuses what the draft refuses", needs("RELAY_SIM"), async () => {
    const url = await relaySim();
    for (const { what, frame, bytes, close } of VECTORS.refused) {
      const { socket } = await raw(url);
      socket.send(Buffer.from(bytes, "hex"), { binary: frame === "binary" });
      const [code] = await once(socket, "close");
      assert.equal(code, close, what);
    }
  });
});

describe("client-sim", () => {
  test("client-sim speaks with the relay", needs("CLIENT_SIM"), async () =>
    clientSimPlays(await ownRelay(), "zstd-dict"));
  test("client-sim speaks text with the relay", needs("CLIENT_SIM"), async () =>
    clientSimPlays(await ownRelay(), "none"));
});

describe("gateway", () => {
  test("the client speaks through the gateway with the relay", needs("GATEWAY"), async () =>
    ownClientPlays(await gateway(await ownRelay()), TOKEN));
  test("the client speaks through the gateway with relay-sim", needs("GATEWAY", "RELAY_SIM"), async () =>
    ownClientPlays(await gateway(await relaySim()), TOKEN));
  test("client-sim speaks through the gateway with the relay", needs("GATEWAY", "CLIENT_SIM"), async () =>
    clientSimPlays(await gateway(await ownRelay()), "zstd-dict"));
});
