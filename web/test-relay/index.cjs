// Starts relay-sim for a test. The relay ends with the process that started it, because its input does.
'use strict'
const { spawn } = require('node:child_process')
const { existsSync } = require('node:fs')
const { join } = require('node:path')

// The program that the caller names, that this package brought, or that is on PATH.
function found(named = process.env.RELAY_SIM) {
  const packed = join(__dirname, 'bin', `${process.platform}-${process.arch}`, 'relay-sim')
  return named || (existsSync(packed) ? packed : 'relay-sim')
}

// A relay on a free port of the loopback; index.d.ts explains options and methods.
exports.start = async ({ faults = [], args = [], program } = {}) => {
  const file = found(program)
  const planted = faults.flatMap(fault => ['--fault', fault])
  const child = spawn(file, ['--listen', '127.0.0.1:0', '--announce', '--control', ...planted, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  // Who forgets to stop a relay is not kept waiting for it.
  const held = [child, child.stdin, child.stdout]
  let said = ''
  const ended = new Promise((resolve, reject) => {
    child.once('error', error =>
      reject(new Error(`${file} does not start: ${error.message}. Set RELAY_SIM to a relay-sim, or put it on PATH`)))
    child.once('close', (code, signal) => resolve(signal ?? code))
  })
  // Noticed by whoever waits for it.
  ended.catch(() => {})
  child.stdin.on('error', () => {})
  const listens = new Promise(resolve => {
    child.stdout.setEncoding('utf8').on('data', text => {
      said += text
      if (said.includes('\n')) resolve()
    })
  })
  await Promise.race([listens, ended])

  const line = place => {
    try {
      return JSON.parse(said.trim().split('\n').at(place))
    } catch {
      return {}
    }
  }
  const { listening, pid, failed } = line(0)
  if (!listening) {
    child.kill()
    throw new Error(`${file} does not listen: ${failed ?? (said.trim() || `it ended with ${await ended}`)}`)
  }
  for (const handle of held) handle.unref()

  const faultsUrl = `${listening.replace(/^ws/, 'http')}/faults`
  const asked = async request => {
    const response = await fetch(faultsUrl, request)
    const answer = await response.json()
    if (!response.ok) throw new Error(answer.error)
    return answer.faults
  }
  return {
    url: listening,
    pid,
    plant: async (...others) => {
      await asked({ method: 'PUT', body: JSON.stringify(others) })
    },
    hits: () => asked(),
    stop: async () => {
      for (const handle of held) handle.ref()
      child.stdin.end()
      const how = await ended
      if (how !== 0) throw new Error(`${file} ended with ${how}`)
      return line(-1)
    },
  }
}
