// nostr-relay of npm with SQLite in memory. Usage: node npm.cjs ADDRESS [tuned]
const { WebSocketServer } = require('ws')
const { NostrRelay } = require('@nostr-relay/core')
const { EventRepositorySqlite } = require('@nostr-relay/event-repository-sqlite')
const { Validator } = require('@nostr-relay/validator')

const limits = {
  maxNumberOfTags: 20_000,
  maxContentLength: 1 << 20,
  maxTagValueLength: 1 << 16,
  maxFilterIdsLength: 10_000,
  maxFilterAuthorsLength: 10_000,
  maxFilterGenericTagsLength: 10_000,
  maxFilterKindsLength: 1_000,
}

async function main(address, word) {
  const tuned = word === 'tuned'
  const [host, port] = address.split(':')
  const store = new EventRepositorySqlite(':memory:', tuned ? { defaultLimit: 6000 } : {})
  await store.init()
  const relay = new NostrRelay(store, tuned ? { filterResultCacheTtl: 0 } : {})
  const validator = new Validator(tuned ? limits : {})
  // ws offers deflate on request alone.
  const server = new WebSocketServer({ host, port: Number(port), perMessageDeflate: tuned && { threshold: 0 } })
  server.on('connection', socket => {
    relay.handleConnection(socket)
    socket.on('message', async data => {
      try {
        await relay.handleMessage(socket, await validator.validateIncomingMessage(data))
      } catch (error) {
        socket.send(JSON.stringify(['NOTICE', error.message]))
      }
    })
    socket.on('close', () => relay.handleDisconnect(socket))
    socket.on('error', () => {})
  })
}
main(...process.argv.slice(2))
