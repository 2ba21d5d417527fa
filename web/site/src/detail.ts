// What stands behind a cell.

import { type Block, type Cell, KEYS, METRICS, type Shown, nameOf } from "./data";
import { el, grid } from "./element";

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const shown = (value?: number) => (value === undefined ? "–" : digits.format(value));
const whole = (value: number) => Math.round(value).toLocaleString("en");

/** Envelopes ÷ core-seconds, in words by which it can be checked. */
function sums(table: Shown, cell: Cell): string | undefined {
  const rate = cell.figures.rate;
  if (!rate?.sums) return undefined;
  const [envelopes, seconds] = rate.sums;
  const whose = table.side === "clients" ? "client" : "relay";
  return `${whole(envelopes)} envelopes = ${seconds.toFixed(3)} ${whose} core-seconds × ${whole(rate.value)} envelopes per core-second`;
}

export function detail(table: Shown, cell: Cell, close: () => void): HTMLElement {
  const { result } = table;
  const figures = KEYS.flatMap((key) => {
    const figure = cell.figures[key];
    if (!figure) return [[METRICS[key].label, "–", "–", "–", table.missing[key] ?? "not measured"]];
    const why = figure.why ?? (figure.at_least ? "a lower bound: something else was full" : "");
    return [[METRICS[key].unit(table), figure.shown, figure.beside_json ?? "–", table.control[key] ?? "–", why]];
  });
  const block = (one: Block) => [
    String(one.round),
    String(one.place),
    one.validity,
    one.envelopes === undefined ? "–" : whole(one.envelopes),
    ...[one.relay_s, one.client_s, one.bytes, one.p50, one.p99].map(shown),
    one.why ?? "",
  ];
  const sum = sums(table, cell);
  const facts: [string, string | undefined][] = [
    ["result", `${result.name}, ${result.started_utc}`],
    ["source", result.source ?? "no known commit"],
    ["machine", result.machine],
    ["measured by", result.measured_by ?? "not stated"],
    ["corpus", result.corpus],
    ["code", cell.code],
    ["compression", `${cell.compression} ${cell.parameters}`],
  ];
  return el(
    "section",
    { id: "cell", "aria-label": `cell ${nameOf(cell)}` },
    el("h2", {}, nameOf(cell), el("button", { type: "button", class: "close", click: close }, "close")),
    grid("Figures", ["figure", "value", "× JSON [95 %]", "A/A", "remark"], figures),
    sum !== undefined && el("p", {}, sum),
    el("dl", {}, ...facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text ?? "")])),
    el("p", {}, "Measure it again:"),
    el("pre", {}, result.reproduce),
    el(
      "details",
      { open: true },
      el("summary", {}, `${cell.blocks.length} blocks`),
      grid(
        undefined,
        ["round", "place", "validity", "envelopes", "relay core-s", "client core-s", "bytes/envelope", "p50 ms", "p99 ms", "remark"],
        cell.blocks.map(block),
      ),
    ),
  );
}
