// The peer of combinations.rs: ws with every valid set of permessage-deflate parameters.
// usage: node combinations.cjs server        an echo server a set; prints their ports
//        node combinations.cjs client URL    a connection a set, which checks the echo; prints each answer
const { once } = require('node:events')
const WebSocket = require('ws')

const flags = [undefined, true]
const windows = [9, 10, 11, 12, 13, 14, 15]
const messages = ['', 'a', '0123456789abcdef'.repeat(40), '0123456789abcdef'.repeat(40), 'é'.repeat(20_000)]

function* sets(serverBits, clientBits) {
  for (const serverNoContextTakeover of flags)
    for (const clientNoContextTakeover of flags)
      for (const serverMaxWindowBits of serverBits)
        for (const clientMaxWindowBits of clientBits)
          yield { serverNoContextTakeover, clientNoContextTakeover, serverMaxWindowBits, clientMaxWindowBits, threshold: 0 }
}

async function server() {
  const handleProtocols = () => 'nostr.json'
  for (const perMessageDeflate of sets([undefined, 8, ...windows], [undefined, ...windows])) {
    const listening = new WebSocket.Server({ host: '127.0.0.1', port: 0, perMessageDeflate, handleProtocols })
    listening.on('connection', socket => socket.on('message', (data, binary) => socket.send(data, { binary })))
    await once(listening, 'listening')
    console.log(listening.address().port)
  }
  console.log('end')
  process.stdin.on('end', () => process.exit(0)).resume()
}

async function client(url) {
  // For ws, `false` is what leaves client_max_window_bits out of the offer.
  for (const perMessageDeflate of sets([undefined, 8, ...windows], [false, true, 8, ...windows])) {
    const socket = new WebSocket(url, ['nostr.json'], { perMessageDeflate })
    let answer
    socket.on('upgrade', response => { answer = response.headers['sec-websocket-extensions'] ?? '' })
    await once(socket, 'open')
    for (const message of messages) {
      socket.send(message)
      const [data] = await once(socket, 'message')
      if (data.toString() !== message) throw new Error(`${JSON.stringify(perMessageDeflate)}: ${data.length} bytes came back`)
    }
    console.log(`${perMessageDeflate.serverMaxWindowBits ?? 15} ${answer}`)
    socket.close()
    await once(socket, 'close')
  }
  console.log('end')
}

const [role, ...rest] = process.argv.slice(2)
Promise.resolve({ server, client }[role](...rest)).catch(error => { console.error(error); process.exit(1) })
