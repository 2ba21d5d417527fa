// The table formats × compressions in colours.

import { type Cell, type Figure, METRICS, nameOf } from "./data";
import { el } from "./element";
import type { State } from "./state";

/** A ratio of e, or its inverse, has this share of the colour. */
const MOST = 55;

function colour(figure: Figure, more: boolean): { class?: string; style?: string } {
  const { ratio, differs, why } = figure;
  if (why) return { class: "greyed" };
  if (ratio === undefined || !differs) return {};
  const log = Math.log(ratio);
  const share = Math.min(12 + Math.abs(log) * MOST, MOST);
  return { class: log > 0 === more ? "good" : "bad", style: `--heat:${share.toFixed(0)}%` };
}

export function heat(state: State, open: (cell: Cell) => void): HTMLElement {
  const { table, metric, beside } = state;
  const { unit, more = false } = METRICS[metric];
  const distinct = (of: (cell: Cell) => string) => [...new Set(table.cells.map(of))];
  const compressions = distinct((cell) => cell.compression);
  const at = (row: string, compression: string) =>
    table.cells.find((cell) => cell.row === row && cell.compression === compression);
  const field = (row: string, compression: string) => {
    const cell = at(row, compression);
    if (!cell) return el("td", {}, "–");
    const figure = cell.figures[metric];
    const other = beside?.cells.find((one) => one.row === row && one.compression === compression)?.figures[metric];
    const [ratio, reach] = (figure?.beside_json ?? "").split(/(?=±| \[)/);
    const says = `${nameOf(cell)}: ${figure ? `${figure.shown} ${figure.beside_json ?? ""}` : "not measured"}`;
    const button = el(
      "button",
      {
        type: "button",
        "aria-label": figure?.why ? `${says}; ${figure.why}` : says,
        "aria-pressed": String(cell === state.cell),
        title: figure?.why,
        click: () => open(cell),
      },
      el("b", {}, figure?.shown ?? "–"),
      figure?.beside_json !== undefined && el("span", {}, ratio ?? "", el("i", {}, reach ?? "")),
      beside && el("span", { class: "other" }, other?.shown ?? "–"),
    );
    return el("td", figure ? colour(figure, more) : {}, button);
  };
  const body = distinct((cell) => cell.row).map((row) =>
    el("tr", {}, el("th", { scope: "row" }, row), ...compressions.map((compression) => field(row, compression))),
  );
  const control = table.control[metric];
  const greyed = [...new Set(table.cells.flatMap((cell) => cell.figures[metric]?.why ?? []))];
  const legend = el(
    "p",
    { class: "legend" },
    el("span", { class: "good", style: "--heat:40%" }, "better than JSON"),
    el("span", { class: "bad", style: "--heat:40%" }, "worse"),
    el("span", {}, "within noise: the interval meets 1 or that of A/A"),
    table.cells.some((cell) => cell.figures[metric]?.at_least) &&
      el("span", {}, "≥ a lower bound: something else was full"),
    table.cells.some((cell) => cell.figures[metric]?.shown.startsWith("[")) && el("span", {}, "[ ] a quantile with 10 to 99 samples beyond it"),
    greyed.length > 0 && el("span", { class: "greyed" }, "does not compare"),
    beside && el("span", { class: "other" }, `lower line: ${beside.result.name}, ${beside.scenario}`),
  );
  return el(
    "div",
    {},
    el(
      "table",
      { class: "heat" },
      el("caption", {}, `${unit(table)}; × JSON without compression with its 95 % interval`),
      el(
        "thead",
        {},
        el("tr", {}, el("th", { scope: "col" }, "format"), ...compressions.map((name) => el("th", { scope: "col" }, name))),
      ),
      el("tbody", {}, ...body),
    ),
    legend,
    greyed.length > 0 && el("p", { class: "note" }, `Greyed: ${greyed.join("; ")}.`),
    el("p", { class: "note" }, control ? `A/A, JSON against itself: ${control}. Less is noise.` : "Without an A/A control."),
  );
}
