// An unmodified nostr-tools against a relay: AUTH, publish, stored events, EOSE, live events, COUNT, refusal.
// Usage: node nostr_tools.cjs ws://127.0.0.1:7777 (the relay runs with --auth; nostr-tools and ws on NODE_PATH)
const assert = require('node:assert/strict')
const { Relay, useWebSocketImplementation } = require('nostr-tools/relay')
const { finalizeEvent, generateSecretKey, getPublicKey, verifyEvent } = require('nostr-tools/pure')
useWebSocketImplementation(require('ws'))

const key = generateSecretKey()
const now = Math.floor(Date.now() / 1000)
const note = (content, tags = []) => finalizeEvent({ kind: 1, created_at: now, tags, content }, key)

function subscribe(relay, filter) {
  const seen = []
  const waiting = []
  const sub = { seen }
  sub.eose = new Promise((resolve, reject) => {
    sub.handle = relay.subscribe([filter], {
      onevent(event) {
        assert(verifyEvent(event), 'the relay altered an event')
        seen.push(event)
        waiting.splice(0).forEach(wake => wake())
      },
      oneose: resolve,
      onclose: reason => reject(new Error(`subscription closed: ${reason}`)),
    })
  })
  sub.until = async count => {
    while (seen.length < count) await new Promise(wake => waiting.push(wake))
  }
  return sub
}

async function main(url) {
  const publisher = await Relay.connect(url)
  const reader = await Relay.connect(url)
  const authors = [getPublicKey(key)]

  const first = note('stored "first" – with ümlauts, \\ and \u0001')
  await publisher.publish(first)
  const sub = subscribe(reader, { kinds: [1], authors })
  await sub.eose
  assert.deepEqual(sub.seen.map(event => event.id), [first.id])

  const live = note('live', [['t', 'x'], ['e', first.id]])
  await publisher.publish(live)
  await sub.until(2)
  assert.equal(sub.seen[1].content, 'live')
  assert.equal(await reader.count([{ kinds: [1], authors }], {}), 2)

  const altered = { ...note('before'), content: 'after' }
  await assert.rejects(publisher.publish(altered), /invalid: event id does not match/)

  // What does not decode is answered as what it asked, so that nobody waits for a timeout.
  const began = Date.now()
  const closed = new Promise(onclose => reader.subscribe([{ kinds: ['x'] }], { onclose }))
  assert.match(await closed, /invalid: /)
  const malformed = { ...note('malformed'), tags: 'none' }
  await assert.rejects(publisher.publish(malformed), /invalid: /)
  assert.ok(Date.now() - began < 2000)

  const secret = note('protected', [['-']])
  await assert.rejects(publisher.publish(secret), /auth-required/)
  await publisher.auth(template => finalizeEvent(template, key))
  await publisher.publish(secret)
  await sub.until(3)

  sub.handle.close()
  publisher.close()
  reader.close()
  console.log('nostr-tools: published, subscribed, counted and authenticated')
}

const limit = setTimeout(() => { console.error('no progress for 20 s'); process.exit(1) }, 20_000)
main(process.argv[2]).then(() => clearTimeout(limit), error => { console.error(error); process.exit(1) })
