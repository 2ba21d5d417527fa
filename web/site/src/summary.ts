// What a result says besides: the parts of its summary.md.

import { probes } from "./charts";
import type { Part, Result } from "./data";
import { el, grid, marked } from "./element";
import { summaryId } from "./questions";

function part(one: Part): HTMLElement {
  if ("heading" in one) return el(one.heading[0] > 2 ? "h4" : "h3", {}, ...marked(one.heading[1]));
  if ("sentence" in one) return el("p", {}, ...marked(one.sentence));
  if ("list" in one) return el("ul", {}, ...one.list.map((item) => el("li", {}, ...marked(item))));
  const { headings, rows, names } = one.table;
  const found = grid(undefined, headings, rows, names);
  if (names === headings.length) found.classList.add("words");
  return found;
}

export function summary(result: Result, open: boolean, width: number): HTMLElement {
  return el(
    "details",
    { class: "result", id: summaryId(result), open },
    el("summary", {}, `${result.name}: all tables, verdicts and conditions`),
    result.tables.length === 0 && el("p", {}, result.headline),
    el("p", {}, el("code", {}, result.command)),
    probes(result, width),
    ...result.parts.map(part),
  );
}
