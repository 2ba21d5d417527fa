// Who comes with which question, and the selection that answers it.

import { type Metric, type Result, type Shown, has, nameOf, results, tables } from "./data";
import { el } from "./element";
import type { State } from "./state";

/** The largest table that a test lets through; of equals one whose result has fewer warnings. */
function largest(is: (table: Shown) => boolean): Shown | undefined {
  const size = ({ cells, result }: Shown) => 100 * cells.length - result.warnings.length;
  return tables.filter(is).reduce<Shown | undefined>((best, table) => (best && size(best) >= size(table) ? best : table), undefined);
}

/** The element of what a result says besides. */
export const summaryId = ({ name }: Result) => `summary-${encodeURIComponent(name)}`;

export function questions(state: State, show: (state: State, goTo: string) => void): HTMLElement {
  const button = (asks: string, click: () => void) => el("button", { type: "button", click }, asks);
  const to = (asks: string, metric: Metric, is: (table: Shown) => boolean) => {
    const table = largest((table) => has(table, metric) && is(table));
    return table && button(asks, () => show({ ...state, table, metric, cell: undefined, beside: undefined }, "table"));
  };
  // Pages of a browser have tables of their own.
  const pages = results.find(({ tables, search }) => tables.length === 0 && !search);
  const doubted = state.table.cells.find((cell) => nameOf(cell) !== "json");
  return el(
    "nav",
    { "aria-label": "questions" },
    to("I run a relay: what does compression cost it?", "rate", ({ side }) => side === "relay"),
    to("I write a relay: what does it cost below its limit?", "relay_cpu", ({ side, link }) => side === "none" && link === "none"),
    to("I write a phone client: what does a slow link take?", "p50", ({ link }) => link !== "none"),
    pages && button("I write a web client: what does a page pay?", () => show(state, summaryId(pages))),
    to("I write a NIP: what do formats save under compression?", "bytes", () => true),
    doubted && button("I doubt it: what is behind a figure?", () => show({ ...state, cell: doubted }, "cell")),
  );
}
