// Tests of the package where it is installed; `deploy/release --check PROGRAMS` packs and installs it.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'node:test'
import { start } from 'nostr-test-relay'

const document = async ({ url }) => {
  const answer = await fetch(url.replace('ws:', 'http:'), { headers: { Accept: 'application/nostr+json' } })
  return answer.json()
}

// Whether a process ends within five seconds.
const ends = async pid => {
  for (let tries = 0; tries < 100; tries += 1) {
    try {
      process.kill(pid, 0)
    } catch {
      return true
    }
    await sleep(50)
  }
  return false
}

test('a relay serves, tells its hits and ends', async () => {
  const relay = await start({ faults: ['nip11-lies', 'no-eose'], args: ['--auth'] })
  assert.match(relay.url, /^ws:\/\/127\.0\.0\.1:\d+$/)
  assert.deepEqual((await document(relay)).faults, ['nip11-lies', 'no-eose'])
  const hits = [{ fault: 'nip11-lies', hits: 1 }, { fault: 'no-eose', hits: 0 }]
  assert.deepEqual(await relay.hits(), hits)
  await assert.rejects(relay.plant('no-such-fault'), /no-such-fault/)
  assert.deepEqual(await relay.hits(), hits, 'a refused fault changes nothing')
  await relay.plant()
  const { faults, supported_nips: nips } = await document(relay)
  assert.deepEqual([faults ?? [], nips.includes(42)], [[], true])
  assert.equal((await relay.stop()).connections, 0)
  await assert.rejects(document(relay))
  assert.ok(await ends(relay.pid))
})

test('relays stand beside each other', async () => {
  const relays = await Promise.all([start(), start()])
  assert.notEqual(relays[0].url, relays[1].url)
  await Promise.all(relays.map(relay => relay.stop()))
})

test('what does not start says why', async () => {
  await assert.rejects(start({ faults: ['no-such-fault'] }), /does not listen: .*no-such-fault/s)
  await assert.rejects(start({ program: '/no/such/relay' }), /\/no\/such\/relay does not start: .*RELAY_SIM/)
  await assert.rejects(start({ program: 'true' }), /true does not listen: it ended with 0/)
  await assert.rejects(start({ program: 'echo' }), /echo does not listen: --listen/)
  process.env.RELAY_SIM = '/of/the/variable'
  await assert.rejects(start(), /\/of\/the\/variable does not start/)
  delete process.env.RELAY_SIM
})

test('a relay that is killed is no relay that stopped', async () => {
  const relay = await start()
  process.kill(relay.pid, 'SIGKILL')
  await assert.rejects(relay.stop(), /ended with SIGKILL/)
})

test('a relay that nobody stops ends with its test', async () => {
  const script = "require('nostr-test-relay').start().then(relay => console.log(relay.pid))"
  const options = { encoding: 'utf8', timeout: 20_000 }
  const { status, stdout } = spawnSync(process.execPath, ['-e', script], options)
  assert.equal(status, 0)
  assert.ok(await ends(Number(stdout)), `${stdout} lives`)
})

test('it is required and imported alike', () => {
  assert.equal(createRequire(import.meta.url)('nostr-test-relay').start, start)
})
