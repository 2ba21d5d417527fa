// Charts of the cells of a table, each with its legend.

import * as Plot from "@observablehq/plot";
import { type Cell, FACETS, METRICS, type Result, type Shown, nameOf, tables } from "./data";
import { el } from "./element";
import type { State } from "./state";

interface Point {
  cell: Cell;
  name: string;
  row: string;
  compression: string;
  bytes: number;
  cpu: number;
}

const STYLE = { fontSize: "12px", background: "transparent", overflow: "visible" };
/** Readable on white and on near black. */
const COLOURS = ["#7a7a78", "#2f7fd0", "#d96b0b", "#1f9e77", "#c44e9b", "#8e6fd8", "#b88a00", "#cc4444", "#1d9cb5"];

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** The cells with bytes and CPU of the side that the table is of. */
function points({ cells, side }: Shown): Point[] {
  const cpuOf = side === "clients" ? "client_cpu" : "relay_cpu";
  return cells.flatMap((cell) => {
    const [bytes, cpu] = [cell.figures.bytes, cell.figures[cpuOf]];
    if (!bytes || !cpu) return [];
    const { row, compression } = cell;
    return [{ cell, name: nameOf(cell), row, compression, bytes: bytes.value, cpu: cpu.value }];
  });
}

/** Points that no other one beats in both, by bytes. */
function front(all: Point[]): Point[] {
  const beats = (one: Point, other: Point) =>
    one.bytes <= other.bytes && one.cpu <= other.cpu && (one.bytes < other.bytes || one.cpu < other.cpu);
  return all.filter((one) => !all.some((other) => beats(other, one))).sort((a, b) => a.bytes - b.bytes);
}

function figure(caption: string, ...content: (Node | string)[]): HTMLElement {
  return el("figure", { "aria-label": caption }, el("figcaption", {}, caption), ...content);
}

const frame = (width: number, height: number) => ({ width, height, marginLeft: 54, marginBottom: 42, style: STYLE, grid: true });

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Few ticks of a logarithmic axis: 1, 2, 5 and their tenfolds, finer ones in a narrow range. */
function ticks(values: number[]): number[] {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const tenfolds = Array.from({ length: 19 }, (_, n) => 10 ** (n - 6));
  const fine = Array.from({ length: 90 }, (_, n) => 1 + n / 10);
  const steps = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 6, 8], fine];
  const within = steps.map((steps) => tenfolds.flatMap((tenfold) => steps.map((step) => step * tenfold)).filter((tick) => tick >= low && tick <= high));
  const enough = within.find((ticks) => ticks.length > 2) ?? [low, high];
  return enough.filter((_, n) => n % Math.ceil(enough.length / 6) === 0);
}

type Axis = { label: string; log?: true };

function scale({ label, log }: Axis, values: number[]) {
  const tickFormat = (value: number) => compact.format(value);
  return log ? { label, tickFormat, type: "log" as const, ticks: ticks(values) } : { label, tickFormat, ticks: 5, zero: true };
}

// Categorical by its type: "none" is the name of a colour, too.
const colours = (names: string[]) => ({ type: "categorical" as const, domain: names, range: names.map((_, n) => COLOURS[n % COLOURS.length] ?? ""), legend: true });

function pareto({ table }: State, width: number): HTMLElement {
  const all = points(table);
  const whose = table.side === "clients" ? "client" : "relay";
  const caption = `Bytes against ${whose} CPU: lower left is better`;
  if (all.length < 2) return figure(caption, el("p", { class: "note" }, "Fewer than two cells have both."));
  const best = front(all);
  const distinct = (of: (point: Point) => string) => [...new Set(all.map(of))];
  const chart = Plot.plot({
    ...frame(width, 380),
    x: scale({ label: "bytes per envelope →", log: true }, all.map((point) => point.bytes)),
    y: scale({ label: `↑ ${whose} µs per envelope`, log: true }, all.map((point) => point.cpu)),
    color: colours(distinct((point) => point.compression)),
    symbol: { legend: true, domain: distinct((point) => point.row) },
    marks: [
      Plot.line(best, { x: "bytes", y: "cpu", curve: "step-after", stroke: "currentColor", strokeOpacity: 0.5 }),
      Plot.dot(all, { x: "bytes", y: "cpu", stroke: "compression", symbol: "row", r: 5, strokeWidth: 2, tip: true, channels: { cell: "name" } }),
    ],
  });
  const names = best.map((point) => point.name).join("; ");
  return figure(caption, chart, el("p", { class: "note" }, `On the front, by bytes: ${names}.`));
}

/** Time of an envelope in µs: its bytes over the bandwidth, and what was measured of CPU. */
const timeUs = ({ bytes, cell }: Point, mbit: number) =>
  (bytes * 8) / mbit + (cell.figures.relay_cpu?.value ?? 0) + (cell.figures.client_cpu?.value ?? 0);

const BANDWIDTHS = Array.from({ length: 41 }, (_, n) => 10 ** (-1 + n / 10));

function bandwidth(state: State, width: number, set: (mbit: number) => void): HTMLElement {
  const all = points(state.table);
  const caption = "Time of an envelope against bandwidth";
  if (all.length < 2) return figure(caption, el("p", { class: "note" }, "Fewer than two cells have bytes and CPU time."));
  const fastest = (mbit: number) => [...all].sort((a, b) => timeUs(a, mbit) - timeUs(b, mbit));
  const plain = all.filter((point) => point.name === "json");
  const shown = [...new Set([...plain, ...BANDWIDTHS.flatMap((mbit) => fastest(mbit).slice(0, 1)), ...all.filter(({ cell }) => cell === state.cell)])];
  // Beside JSON, since the lines of all formats are close otherwise.
  const [unit, whole] = plain[0] ? ["× JSON", (mbit: number) => timeUs(plain[0] as Point, mbit)] as const : ["µs per envelope", () => 1] as const;
  const rows = shown.flatMap((point) => BANDWIDTHS.map((mbit) => ({ mbit, time: timeUs(point, mbit) / whole(mbit), name: point.name })));
  const draw = (mbit: number) =>
    Plot.plot({
      ...frame(width, 330),
      x: scale({ label: "bandwidth, Mbit/s →", log: true }, BANDWIDTHS),
      y: scale({ label: `↑ time of an envelope, ${unit}` }, []),
      color: colours(shown.map((point) => point.name)),
      marks: [
        Plot.line(rows, { x: "mbit", y: "time", stroke: "name", strokeWidth: 2, tip: true }),
        Plot.ruleX([mbit], { stroke: "currentColor", strokeDasharray: "4 3" }),
      ],
    });
  const said = (mbit: number) => {
    const order = fastest(mbit);
    const named = order.slice(0, 3).map((point) => `${point.name} ${digits.format(timeUs(point, mbit))} µs`);
    const json = plain[0] && !order.slice(0, 3).includes(plain[0]) ? `; json ${digits.format(timeUs(plain[0], mbit))} µs` : "";
    return `At ${digits.format(mbit)} Mbit/s: ${named.join(", ")}${json}`;
  };
  const [chart, output] = [el("div", {}, draw(state.mbit)), el("output", { for: "mbit" }, said(state.mbit))];
  const slide = (event: Event) => {
    const mbit = Number((10 ** Number((event.target as HTMLInputElement).value)).toPrecision(3));
    output.textContent = said(mbit);
    chart.replaceChildren(draw(mbit));
    set(mbit);
  };
  const slider = el("input", {
    id: "mbit", type: "range", min: "-1", max: "3", step: "0.05", value: String(Math.log10(state.mbit)), input: slide,
  });
  const parts = hasBoth(state.table) ? "of relay and clients" : state.table.side === "clients" ? "of clients" : "of the relay";
  return figure(
    caption,
    chart,
    el("label", { class: "slider", for: "mbit" }, "bandwidth ", slider),
    el("p", {}, output),
    el("p", { class: "note" }, `Bytes ÷ bandwidth + measured CPU time ${parts}. JSON and each cell that is fastest somewhere. No round trip, no queue.`),
  );
}

const hasBoth = ({ cells }: Shown) => cells.some(({ figures }) => figures.relay_cpu) && cells.some(({ figures }) => figures.client_cpu);

/** What a chart of several tables has on its x axis. */
const ACROSS: [name: string, label: string, of: (table: Shown) => number | undefined][] = [
  ["Fan-out", "deliveries for each accepted publish →", (table) => table.fan_out],
  ["Load", "deliveries/s →", (table) => table.deliveries_per_s],
];

/** Tables of the same result that differ in their load alone, in the order of one quantity that differs. */
function siblings(table: Shown) {
  const alike = FACETS.filter(([name]) => name !== "scenario");
  const all = tables.filter((other) => alike.every(([, of]) => of(other) === of(table)));
  for (const [name, label, of] of ACROSS) {
    const found = all.flatMap((table) => (of(table) === undefined ? [] : [{ table, x: of(table) ?? 0 }])).sort((a, b) => a.x - b.x);
    if (found.length > 1 && (found.at(-1)?.x ?? 0) > 1.5 * (found[0]?.x ?? 0)) return { name, label, found };
  }
  return undefined;
}

function fanOut({ table, metric }: State, width: number, show: (table: Shown) => void): HTMLElement {
  const unit = METRICS[metric].unit(table);
  const across = siblings(table);
  if (!across) {
    const elsewhere = tables.find((other) => siblings(other)?.name === "Fan-out");
    const measured =
      table.fan_out === undefined
        ? "No event is published while this is measured, so there is no fan-out."
        : `One fan-out was measured here: ${digits.format(table.fan_out)} deliveries for each accepted publish.`;
    const button = elsewhere && el("button", { type: "button", click: () => show(elsewhere) }, `Show ${elsewhere.result.name}`);
    return figure("Fan-out", el("p", { class: "note" }, measured), ...(button ? [button] : []));
  }
  const rows = across.found.flatMap(({ table: { cells, scenario }, x }) =>
    cells.flatMap((cell) => {
      const figure = cell.figures[metric];
      return figure && !figure.why ? [{ x, y: figure.value, name: nameOf(cell), scenario }] : [];
    }),
  );
  return lines(`${across.name}: ${unit}`, rows, width, { label: across.label, log: true }, { label: `↑ ${unit}`, log: true }, true);
}

/** A line for each name, with its legend. */
function lines(caption: string, all: { x: number; y: number; name: string }[], width: number, x: Axis, y: Axis, dots = false): HTMLElement {
  // Nothing else has a place on logarithmic axes.
  const rows = all.filter((row) => row.x > 0 && row.y > 0);
  if (rows.length === 0) return figure(caption, el("p", { class: "note" }, "No figure of it compares here."));
  const chart = Plot.plot({
    ...frame(width, 330),
    x: scale(x, rows.map((row) => row.x)),
    y: scale(y, rows.map((row) => row.y)),
    color: colours([...new Set(rows.map((row) => row.name))]),
    marks: [
      Plot.line(rows, { x: "x", y: "y", stroke: "name", strokeWidth: 2, tip: !dots }),
      ...(dots ? [Plot.dot(rows, { x: "x", y: "y", stroke: "name", r: 4, tip: true })] : []),
    ],
  });
  return figure(caption, chart);
}

/** The probes of a search. */
export function probes({ search }: Result, width: number): HTMLElement | undefined {
  if (!search) return undefined;
  const rows = search.cells.flatMap(([name, points]) => points.map(([x, y]) => ({ x, y, name })));
  return lines(`${search.y} against ${search.x}`, rows, width, { label: `${search.x} →`, log: true }, { label: `↑ ${search.y}`, log: true }, true);
}

/** At most so many cells have lines beside each other. */
const MOST_LINES = 8;

/** Latency by share, and each second of a block: of all cells, or of JSON and the cell that is open. */
function courses({ table, cell }: State, width: number): HTMLElement[] {
  const cells = table.cells.filter((one) => table.cells.length <= MOST_LINES || nameOf(one) === "json" || one === cell);
  const of = (points: (cell: Cell) => [number, number][]) =>
    cells.flatMap((one) => points(one).map(([x, y]) => ({ x, y, name: nameOf(one) })));
  const bySecond = (values: number[]) => values.map((value, second): [number, number] => [second + 1, value]);
  const drawn = (caption: string, points: (cell: Cell) => [number, number][], x: Axis, y: Axis) => {
    const rows = of(points);
    return rows.length > 1 ? [lines(caption, rows, width, x, y)] : [];
  };
  const isQueue = (one: Cell) => table.cells.length > 1 && one.figures.p50?.why !== undefined;
  const seconds = { label: "second of a block →" };
  return [
    ...drawn(`Latency (${table.latency}) by share`, (one) => (isQueue(one) ? [] : one.slowest), { label: "slowest 1 in N →", log: true }, { label: "↑ ms", log: true }),
    ...drawn("p50 second by second", (one) => bySecond(isQueue(one) ? [] : one.seconds_p50), seconds, { label: "↑ ms" }),
    ...drawn("Envelopes second by second", (one) => bySecond(one.seconds_envelopes), seconds, { label: "↑ envelopes" }),
  ];
}

export function charts(state: State, width: number, set: (mbit: number) => void, show: (table: Shown) => void): HTMLElement {
  const compared = [pareto(state, width), bandwidth(state, width, set), fanOut(state, width, show)];
  const all = [...(state.table.cells.length > 1 ? compared : []), ...courses(state, width)];
  return el("div", { class: "figures" }, ...all);
}
