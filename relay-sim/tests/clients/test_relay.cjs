// Tests of an unmodified nostr-tools against a relay that misbehaves.
// Usage: node test_relay.cjs (relay-sim on PATH or as RELAY_SIM; nostr-tools and ws on NODE_PATH)
const assert = require('node:assert/strict')
const { Relay, useWebSocketImplementation } = require('nostr-tools/relay')
const { finalizeEvent, generateSecretKey, getPublicKey } = require('nostr-tools/pure')
// The package nostr-test-relay.
const { start } = require('../../../web/test-relay/index.cjs')
useWebSocketImplementation(require('ws'))

const key = generateSecretKey()
const authors = [getPublicKey(key)]
const now = Math.floor(Date.now() / 1000)
const note = content => finalizeEvent({ kind: 1, created_at: now, tags: [], content }, key)

// The stored events, and whether their end was told or only assumed.
function stored(relay, eoseTimeout = 10_000) {
  const events = []
  const invalid = []
  return new Promise((resolve, reject) => {
    const began = Date.now()
    const sub = relay.subscribe([{ kinds: [1], authors }], {
      eoseTimeout,
      onevent: event => events.push(event),
      oninvalidevent: event => invalid.push(event),
      oneose: () => {
        resolve({ events, invalid, ms: Date.now() - began })
        sub.close()
      },
      onclose: reason => reject(new Error(reason)),
    })
  })
}

async function main() {
  const sim = await start()
  const relay = await Relay.connect(sim.url)
  const first = note('first')
  await relay.publish(first)

  // NIP-01: EOSE may never come, so nobody waits for it without end.
  await sim.plant('no-eose')
  const { events, ms } = await stored(relay, 500)
  assert.deepEqual(events.map(({ id }) => id), [first.id])
  // Timers of Node may fire a millisecond early.
  assert.ok(ms > 400 && ms < 5000, `${ms} ms`)

  // NIP-01: an event whose id or signature is wrong is none.
  for (const fault of ['wrong-sig', 'wrong-id', 'alter']) {
    await sim.plant(fault)
    const { events, invalid } = await stored(relay)
    assert.deepEqual([events.length, invalid.length], [0, 1], fault)
  }

  // NIP-01: a refusal by rate-limited: is worth another try, after a pause.
  await sim.plant('rate-limited:message=1')
  const second = note('second')
  await assert.rejects(relay.publish(second), /rate-limited: /)
  await new Promise(resolve => setTimeout(resolve, 100))
  await relay.publish(second)

  // NIP-42: after auth-required: the client authenticates, and sends the event again.
  await sim.plant('auth-required')
  const third = note('third')
  await assert.rejects(relay.publish(third), /auth-required: /)
  await relay.auth(template => finalizeEvent(template, key))
  await relay.publish(third)
  assert.deepEqual((await sim.hits()).map(({ hits }) => hits), [2])

  // NIP-01: OK belongs to the event that it names.
  relay.publishTimeout = 500
  await sim.plant('wrong-ok')
  await assert.rejects(relay.publish(note('fourth')), /timed out/)

  // RFC 6455: a relay closes when it wants to; the next connection works.
  await sim.plant('close=1013:message=1:connection=1')
  const closed = new Promise(resolve => (relay.onclose = resolve))
  relay.subscribe([{ kinds: [1] }], {})
  await closed
  const again = await Relay.connect(sim.url)
  assert.equal((await stored(again)).events.length, 4)
  again.close()
  await sim.stop()
  console.log('nostr-tools: timed out, verified, tried again, authenticated and connected again')
}

const limit = setTimeout(() => { console.error('no progress for 20 s'); process.exit(1) }, 20_000)
main().then(() => clearTimeout(limit), error => { console.error(error); process.exit(1) })
