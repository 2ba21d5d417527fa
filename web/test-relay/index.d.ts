export interface Options {
  /** Faults from the start, as `relay-sim --fault` takes them: `no-eose`, `close=1013:message=3`. */
  faults?: string[]
  /** Further flags of relay-sim, as `--auth`. */
  args?: string[]
  /** The program, before the variable RELAY_SIM, that of this package and that on PATH. */
  program?: string
}

export interface Hits {
  fault: string
  /** How often it acted. */
  hits: number
}

export interface Relay {
  /** `ws://127.0.0.1:PORT`. */
  url: string
  /** Its process. */
  pid: number
  /** Replaces all faults, also for open connections. */
  plant(...faults: string[]): Promise<void>
  /** The planted faults, in their order. */
  hits(): Promise<Hits[]>
  /** Ends the relay; its totals, as `relay-sim --announce` prints them. */
  stop(): Promise<Record<string, unknown>>
}

/** Starts a relay on a free port of the loopback; rejects with the relay's reason if it cannot listen. */
export function start(options?: Options): Promise<Relay>
