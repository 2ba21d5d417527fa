// What crates/report/src/pages/explorer.rs writes. Figures, intervals and their text are made there.

export type Metric = "rate" | "bytes" | "relay_cpu" | "client_cpu" | "p50" | "p99";

export interface Figure {
  value: number;
  /** As every table shows it. */
  shown: string;
  /** To JSON without compression, with the ends of its 95 % interval. */
  ratio?: number;
  low?: number;
  high?: number;
  /** The ratio with its interval, as every table shows it. */
  beside_json?: string;
  /** Its interval leaves out 1 and that of JSON against itself. */
  differs?: true;
  /** Not the limit: something else was full. */
  at_least?: boolean;
  /** Why it compares with nothing. */
  why?: string;
  /** What is divided, and what divides it. */
  sums?: [number, number];
}

export interface Block {
  round: number;
  place: number;
  validity: string;
  envelopes?: number;
  relay_s?: number;
  client_s?: number;
  bytes?: number;
  p50?: number;
  p99?: number;
  why?: string;
}

export interface Cell {
  id: string;
  row: string;
  compression: string;
  parameters: string;
  code: string;
  figures: Partial<Record<Metric, Figure>>;
  /** N with the latency in ms that the slowest 1 in N exceed. */
  slowest: [n: number, ms: number][];
  /** Of each second of a block, medians over rounds. */
  seconds_p50: number[];
  seconds_envelopes: number[];
  blocks: Block[];
}

/** Cells that compare: formats × compressions under one load, of one implementation at one relay. */
export interface Table {
  scenario: string;
  side: string;
  implementation: string;
  relay: string;
  link: string;
  /** Deliveries for each accepted publish. */
  fan_out?: number;
  deliveries_per_s?: number;
  latency: string;
  /** What came out, in sentences. */
  answer: string[];
  /** JSON against itself. */
  control: Partial<Record<Metric, string>>;
  /** Why a metric has no figures. */
  missing: Partial<Record<Metric, string>>;
  cells: Cell[];
}

/** A part of a summary, without marks of Markdown but `code` and **bold**. */
export type Part =
  | { heading: [level: number, text: string] }
  | { sentence: string }
  | { list: string[] }
  | { table: { names: number; headings: string[]; rows: string[][] } };

export interface Result {
  name: string;
  title: string;
  command: string;
  reproduce: string;
  started_utc: string;
  /** The commit, and whether files differed from it. */
  source?: string;
  changed?: true;
  machine: string;
  /** Who measured it, as they say. */
  measured_by?: string;
  corpus: string;
  warnings: string[];
  headline: string;
  tables: Table[];
  /** Probes of a search against its axis. */
  search?: { x: string; y: string; cells: [name: string, points: [x: number, y: number][]][] };
  parts: Part[];
}

/** A table with the result that it is of. */
export interface Shown extends Table {
  id: string;
  result: Result;
}

export const results: Result[] = JSON.parse(document.getElementById("data")?.textContent ?? "[]");

export const tables: Shown[] = results.flatMap((result) =>
  result.tables.map((table, place) => ({ ...table, result, id: `${result.name}/${place + 1}` })),
);

/** What tables differ in, in the order of its selectors. */
export const FACETS: [name: string, of: (table: Shown) => string][] = [
  ["result", (table) => table.result.name],
  ["scenario", (table) => table.scenario],
  ["corpus", (table) => table.result.corpus],
  ["at its limit", (table) => table.side],
  ["implementation", (table) => table.implementation],
  ["relay", (table) => table.relay],
  ["link", (table) => table.link],
];

export const METRICS: Record<Metric, { label: string; unit: (table: Table) => string; more?: true }> = {
  rate: {
    label: "envelopes/s",
    unit: ({ side }) =>
      side === "clients" ? "envelopes/s that one client core reads" : "envelopes/s that one relay core sends",
    more: true,
  },
  bytes: { label: "bytes", unit: () => "bytes per envelope" },
  relay_cpu: { label: "relay CPU", unit: () => "relay CPU, µs per envelope" },
  client_cpu: { label: "client CPU", unit: () => "client CPU, µs per envelope" },
  p50: { label: "p50", unit: ({ latency }) => `p50 of ${latency}, ms` },
  p99: { label: "p99", unit: ({ latency }) => `p99 of ${latency}, ms` },
};

export const KEYS = Object.keys(METRICS) as Metric[];

export const has = (table: Table, metric: Metric) => table.cells.some((cell) => cell.figures[metric]);

/** Why a figure of two tables does not compare; empty where it does. */
export function unlike(one: Shown, other: Shown, metric: Metric): string[] {
  const { unit, label } = METRICS[metric];
  const reasons = has(other, metric) ? [] : [`no ${label}`];
  if (unit(one) !== unit(other)) reasons.push(`another figure, ${unit(other)}`);
  const [own, its] = [one.result, other.result];
  // Tables of one run share all of it.
  if (own === its) return reasons;
  if (own.machine !== its.machine) reasons.push("another machine");
  if (!own.source || own.source !== its.source || own.changed) reasons.push("another commit");
  if (own.corpus !== its.corpus) reasons.push("another corpus");
  return reasons;
}

export const nameOf = (cell: Cell) => (cell.compression === "none" ? cell.row : `${cell.row} + ${cell.compression}`);
