// Tests of an unmodified NDK against a relay that misbehaves.
// Usage: node test_relay_ndk.cjs (relay-sim on PATH; @nostr-dev-kit/ndk and ws on NODE_PATH)
const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { createInterface } = require('node:readline')
globalThis.WebSocket ??= require('ws')
const { default: NDK, NDKEvent, NDKPrivateKeySigner } = require('@nostr-dev-kit/ndk')

const signer = NDKPrivateKeySigner.generate()
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

// A relay on a free port. It stops when this process ends, because its standard input does.
async function start() {
  const child = spawn('relay-sim', ['--listen', '127.0.0.1:0', '--announce', '--control'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const { listening } = JSON.parse((await lines.next()).value)
  const control = listening.replace('ws:', 'http:') + '/faults'
  return {
    url: listening,
    // Replaces the faults of the relay.
    async plant(...faults) {
      const answer = await fetch(control, { method: 'PUT', body: JSON.stringify(faults) })
      assert.equal(answer.status, 200, await answer.text())
    },
    stop: () => child.stdin.end(),
  }
}

// Without the outbox model, which would ask relays elsewhere.
async function client(url) {
  const ndk = new NDK({ explicitRelayUrls: [url], enableOutboxModel: false, autoConnectUserRelays: false, signer })
  await ndk.connect(5000)
  return ndk
}

// Why no relay took the event; nothing where one did.
async function refusal(event, timeoutMs = 5000) {
  return event.publish(undefined, timeoutMs).then(() => '', error => error.relayErrors)
}

// What a client that knows no event yet gets, how many signatures it finds wrong, and whether EOSE
// came. fetchEvents of NDK 3.0.3 waits for EOSE without end.
async function stored(url, filter, patience = 5000) {
  const ndk = await client(url)
  let [events, invalid] = [0, 0]
  ndk.on('event:invalid-sig', () => invalid++)
  const eose = await new Promise(resolve => {
    const onEose = () => resolve(true)
    ndk.subscribe({ kinds: [1], authors: [signer.pubkey], ...filter }, { groupable: false, onEvent: () => events++, onEose })
    setTimeout(resolve, patience, false)
  })
  for (const relay of ndk.pool.relays.values()) relay.disconnect()
  return { events, invalid, eose }
}

async function main() {
  const sim = await start()
  const ndk = await client(sim.url)
  const note = content => new NDKEvent(ndk, { kind: 1, content })
  assert.equal(await refusal(note('first')), '')

  // NIP-01: EOSE may never come, so nobody waits for it without end.
  await sim.plant('no-eose')
  assert.deepEqual(await stored(sim.url, {}, 500), { events: 1, invalid: 0, eose: false })

  // NIP-01: an event whose signature is wrong is none. NDK 3.0.3 then takes the right one for wrong,
  // too, in all of the process.
  const spoiled = note('spoiled')
  assert.equal(await refusal(spoiled), '')
  await sim.plant('wrong-sig')
  const { events, invalid } = await stored(sim.url, { ids: [spoiled.id] })
  assert.deepEqual([events, invalid], [0, 1])
  await sim.plant()
  assert.equal((await stored(sim.url, { ids: [spoiled.id] })).events, 0)

  // NIP-01: a refusal by rate-limited: is worth another try, after a pause.
  await sim.plant('rate-limited:message=1')
  const second = note('second')
  assert.match(await refusal(second), /rate-limited: /)
  await pause(100)
  assert.equal(await refusal(second), '')

  // NIP-42: after auth-required: the client authenticates and sends the event again, here by itself.
  ndk.relayAuthDefaultPolicy = async () => true
  await sim.plant('auth-required')
  assert.equal(await refusal(note('third')), '')

  // NIP-01: OK belongs to the event that it names.
  await sim.plant('wrong-ok')
  assert.match(await refusal(note('fourth'), 500), /timeout/i)

  // RFC 6455: a relay closes when it wants to; the next connection works.
  await sim.plant('close=1013:message=1:connection=1')
  const closed = new Promise(resolve => ndk.pool.once('relay:disconnect', resolve))
  await refusal(note('fifth'), 500)
  await closed
  assert.equal((await stored(sim.url)).events, 4)
  sim.stop()
  console.log('NDK: timed out, verified, tried again, authenticated and connected again')
}

const limit = setTimeout(() => { console.error('no progress for 40 s'); process.exit(1) }, 40_000)
main().then(() => process.exit(0), error => { console.error(error); process.exit(1) }).finally(() => clearTimeout(limit))
