// A feed by an unmodified nostr-tools, in Node or on a page of Chromium.
// Usage: node feed.cjs URL                 in Node; nostr-tools and ws on NODE_PATH
//        node feed.cjs URL FILE CHROMIUM   on a page; FILE gets the HAR that its developer tools would save
const fs = require('node:fs')
const path = require('node:path')
const { createServer } = require('node:http')
const { spawn } = require('node:child_process')

// Somebody publishes; a reader opens the feed of those whom she follows, pages back, and stays.
async function feed({ Relay, finalizeEvent, generateSecretKey, getPublicKey }, url) {
  const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
  const keys = Array.from({ length: 3 }, generateSecretKey)
  const people = keys.map(getPublicKey)
  let time = Math.floor(Date.now() / 1000) - 1000
  const publish = (relay, key, kind, content, tags = []) =>
    relay.publish(finalizeEvent({ kind, created_at: time++, tags, content }, key))
  const stored = (relay, filter, expected) => new Promise((resolve, reject) => {
    const seen = []
    const sub = relay.subscribe([filter], {
      onevent: event => seen.push(event),
      oneose() {
        sub.close()
        seen.length === expected ? resolve(seen) : reject(new Error(`${seen.length} of ${expected} events`))
      },
    })
  })

  const writer = await Relay.connect(url)
  for (const [n, key] of keys.entries()) {
    await publish(writer, key, 0, JSON.stringify({ name: `somebody ${n}`, about: 'writes – often' }))
    await publish(writer, key, 3, '', people.map(person => ['p', person]))
    for (let note = 0; note < 10; note++) await publish(writer, key, 1, `note ${note} about "gardens" `.repeat(1 + note))
  }
  await pause(500)
  const reader = await Relay.connect(url)
  const [contacts] = await stored(reader, { kinds: [3], authors: [people[0]] }, 1)
  const authors = contacts.tags.map(tag => tag[1])
  await stored(reader, { kinds: [0], authors }, 3)
  const page = await stored(reader, { kinds: [1], authors, limit: 20 }, 20)
  const until = Math.min(...page.map(event => event.created_at)) - 1
  await stored(reader, { kinds: [1], authors, limit: 20, until }, 10)
  let came = 0
  const sub = await new Promise(resolve => {
    const sub = reader.subscribe([{ kinds: [1, 7], authors, since: time }], {
      onevent: () => came++,
      oneose: () => resolve(sub),
    })
  })
  await pause(500)
  for (let n = 0; n < 10; n++) {
    await publish(writer, keys[n % 3], 1, `live note ${n}`)
    await publish(writer, keys[(n + 1) % 3], 7, '+', [['e', page[n].id], ['p', page[n].pubkey]])
    await pause(20)
  }
  while (came < 20) await pause(20)
  await pause(500)
  sub.close()
  reader.close()
  writer.close()
  await pause(500)
}

async function onPage(url, file, chromium) {
  const entries = new Map()
  const of = id => entries.get(id)._webSocketMessages
  const frame = (type, { requestId, timestamp, response }) => {
    const { began } = entries.get(requestId)
    of(requestId).push({ type, time: began + timestamp, opcode: response.opcode, data: response.payloadData })
  }
  const heard = {
    'Network.webSocketCreated': ({ requestId, url }) =>
      entries.set(requestId, { _resourceType: 'websocket', request: { url }, _webSocketMessages: [] }),
    'Network.webSocketWillSendHandshakeRequest': ({ requestId, timestamp, wallTime }) =>
      Object.defineProperty(entries.get(requestId), 'began', { value: wallTime - timestamp }),
    'Network.webSocketHandshakeResponseReceived': ({ requestId, response }) => {
      const headers = Object.entries(response.headers).map(([name, value]) => ({ name, value }))
      entries.get(requestId).response = { status: response.status, headers }
    },
    'Network.webSocketFrameSent': sent => frame('send', sent),
    'Network.webSocketFrameReceived': received => frame('receive', received),
  }
  const bundle = require.resolve('nostr-tools').replace(/nostr-tools.*/, 'nostr-tools/lib/nostr.bundle.js')
  const html = `<!doctype html><script src="bundle.js"></script><script>
    const end = why => fetch('end', { method: 'POST', body: why ?? '' })
    ;(${feed})(NostrTools, ${JSON.stringify(url)}).then(() => end(), error => end(String(error.stack ?? error)))
    </script>`
  let ended
  const end = new Promise(resolve => { ended = resolve })
  const server = createServer((request, response) => {
    if (request.method === 'POST') request.setEncoding('utf8').on('data', ended).on('end', () => ended(''))
    const isScript = request.url === '/bundle.js'
    response.setHeader('Content-Type', isScript ? 'text/javascript' : 'text/html; charset=utf-8')
    response.end(isScript ? fs.readFileSync(bundle) : html)
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  // Beside the file, whose folder the test removes: processes of the browser may outlive it by a moment.
  const profile = path.join(path.dirname(file), 'profile')
  const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run', `--user-data-dir=${profile}`]
  const browser = spawn(chromium, [...flags, '--remote-debugging-pipe'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] })
  const answers = new Map()
  let rest = ''
  browser.stdio[4].setEncoding('utf8').on('data', text => {
    const messages = (rest + text).split('\0')
    rest = messages.pop()
    for (const { id, method, params, result } of messages.map(message => JSON.parse(message))) {
      id ? answers.get(id)(result) : heard[method]?.(params)
    }
  })
  const ask = (method, params, sessionId) => new Promise(resolve => {
    answers.set(answers.size + 1, resolve)
    browser.stdio[3].write(JSON.stringify({ id: answers.size, method, params, sessionId }) + '\0')
  })
  try {
    const { targetId } = await ask('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await ask('Target.attachToTarget', { targetId, flatten: true })
    await ask('Network.enable', {}, sessionId)
    await ask('Page.navigate', { url: `http://127.0.0.1:${server.address().port}/` }, sessionId)
    const why = await end
    if (why) throw new Error(why)
    // Frames of before are told by then.
    await ask('Network.disable', {}, sessionId)
  } finally {
    browser.kill('SIGKILL')
    server.close()
  }
  fs.writeFileSync(file, JSON.stringify({ log: { version: '1.2', entries: [...entries.values()] } }))
}

async function inNode(url) {
  const relay = require('nostr-tools/relay')
  relay.useWebSocketImplementation(require('ws'))
  await feed({ ...require('nostr-tools/pure'), ...relay }, url)
}

const [url, file, chromium] = process.argv.slice(2)
setTimeout(() => { console.error('no end within 60 s'); process.exit(1) }, 60_000).unref()
;(file ? onPage(url, file, chromium) : inNode(url)).then(() => process.exit(0), error => { console.error(error); process.exit(1) })
