// One client of `run`: node node.mjs WHICH URL SCRIPT, or node node.mjs WHICH URL SCRIPT CONNECTIONS.
//
// Sends every line of SCRIPT, prints every message, and ends with the marker. With CONNECTIONS it
// opens so many, each of which reads what SCRIPT asks for, and holds them until its input ends.
import fs from 'node:fs';
import { createRequire } from 'node:module';

const [which, url, script, connections] = process.argv.slice(2);
const require = createRequire(process.env.MODULES + '/');
const lines = fs.readFileSync(script, 'utf8').split('\n').filter(Boolean);
const END = 'the end of the campaign';

const fail = (error) => {
  console.error('error:', error?.message ?? error?.error ?? error);
  process.exitCode = 1;
};
const print = (text, close) => {
  process.stdout.write(text + '\n');
  if (text.includes(END)) close();
};

const options = {
  'ws-no-takeover': { perMessageDeflate: { serverNoContextTakeover: true, clientNoContextTakeover: true } },
  'ws-window-9': { perMessageDeflate: { serverMaxWindowBits: 9 } },
};

// A client with the browsers' interface.
function open() {
  if (which.startsWith('ws')) return new (require('ws'))(url, options[which] ?? {});
  if (which === 'undici') return new (require('undici').WebSocket)(url);
  const { Client } = require('faye-websocket');
  return new Client(url, [], { extensions: [require('permessage-deflate')] });
}

function play() {
  const socket = open();
  socket.onopen = () => lines.forEach((line) => socket.send(line));
  socket.onmessage = ({ data }) => print(data, () => socket.close(1000));
  socket.onerror = fail;
  socket.onclose = ({ code, reason }) => console.error('closed', code, reason);
}

function playWebsocket() {
  const client = new (require('websocket').client)({ maxReceivedFrameSize: 1 << 26, maxReceivedMessageSize: 1 << 26 });
  client.on('connectFailed', fail);
  client.on('connect', (connection) => {
    connection.on('message', ({ utf8Data }) => print(utf8Data, () => connection.close(1000)));
    connection.on('error', fail);
    lines.forEach((line) => connection.sendUTF(line));
  });
  client.connect(url);
}

async function hold() {
  const held = [];
  for (let n = 0; n < Number(connections); n++) {
    held.push(await new Promise((resolve, reject) => {
      const socket = open();
      socket.onopen = () => lines.forEach((line) => socket.send(line));
      socket.onmessage = ({ data }) => data.startsWith('["EOSE"') && resolve(socket);
      socket.onerror = reject;
    }));
  }
  globalThis.gc?.();
  console.log('held');
  process.stdin.on('end', () => process.exit(0)).resume();
}

if (connections) hold().catch(fail);
else if (which === 'websocket') playWebsocket();
else play();
