// The page: selectors, the table formats × compressions, what is behind a cell, charts, and the summary.

import { charts } from "./charts";
import { FACETS, KEYS, METRICS, type Result, type Shown, has, results, tables, unlike } from "./data";
import { detail } from "./detail";
import { el } from "./element";
import { heat } from "./heat";
import { questions } from "./questions";
import { type State, moved, nearest, read, write } from "./state";
import { summary } from "./summary";

const page = document.getElementById("page") ?? document.body;
/** Beside each other where there is room for two. */
const TWO_FROM_PX = 900;
const GAP_PX = 16;

function select(name: string, value: string, options: [value: string, text: string, why?: string][], pick: (value: string) => void) {
  const made = el(
    "select",
    { change: (event) => pick((event.target as HTMLSelectElement).value), name },
    ...options.map(([own, text, why]) =>
      el("option", { value: own, selected: own === value, disabled: why !== undefined }, why ? `${text}: ${why}` : text),
    ),
  );
  return el("label", {}, el("span", {}, name), made);
}

/** What was played, in a few words. */
const loadOf = ({ scenario, side, link }: Shown) =>
  [scenario, ...(side === "none" ? [] : [`${side} full`]), ...(link === "none" ? [] : [`over ${link}`])].join(", ");

function selectors(state: State, show: (state: State) => void): HTMLElement {
  const { table } = state;
  const facets = FACETS.flatMap(([name, of]) => {
    const values = [...new Set(tables.map(of))];
    if (values.length < 2) return [];
    const options = values.map((value): [string, string] => {
      const next = nearest(table, name, value);
      if (name === "result") return [value, `${value}: ${loadOf(next)}`];
      // What else changes with it.
      const also = FACETS.filter(([other, own]) => ![name, "result"].includes(other) && own(next) !== own(table));
      return [value, also.length > 0 ? `${value} (other ${also.map(([other]) => other).join(", ")})` : value];
    });
    return [select(name, of(table), options, (value) => show(moved(state, nearest(table, name, value))))];
  });
  const beside = tables.filter((other) => other !== table).map((other): [string, string, string?] => {
    const reasons = unlike(table, other, state.metric);
    const text = `${other.result.name}: ${other.scenario}, ${other.implementation}, ${other.relay}`;
    return reasons.length > 0 ? [other.id, text, reasons.join(", ")] : [other.id, text];
  });
  const pick = (id: string) => show({ ...state, beside: tables.find((other) => other.id === id) });
  const choice: [string, string, string?][] = [["", "nothing"], ...beside];
  if (beside.length > 0) facets.push(select("beside it", state.beside?.id ?? "", choice, pick));
  return el("form", { class: "selectors", submit: (event) => event.preventDefault() }, ...facets);
}

function metrics(state: State, show: (state: State) => void): HTMLElement {
  const { table } = state;
  const button = (key: (typeof KEYS)[number]) =>
    el(
      "button",
      {
        type: "button",
        "aria-pressed": String(key === state.metric),
        disabled: !has(table, key),
        title: table.missing[key],
        click: () => show({ ...state, metric: key }),
      },
      METRICS[key].label,
    );
  const missing = new Map<string, string[]>();
  for (const key of KEYS.filter((key) => !has(table, key))) {
    const why = table.missing[key] ?? "not measured";
    missing.set(why, [...(missing.get(why) ?? []), METRICS[key].label]);
  }
  const reasons = [...missing].map(([why, keys]) => `${keys.join(", ")}: ${why}`);
  return el(
    "div",
    { role: "group", "aria-label": "figure", class: "metrics" },
    ...KEYS.map(button),
    reasons.length > 0 && el("p", { class: "note" }, `Greyed: ${reasons.join(". ")}.`),
  );
}

function whole(state: State): Node[] {
  const { table, cell } = state;
  const { result } = table;
  // What cannot be compared is not shown beside it, whoever asks.
  if (state.beside && unlike(table, state.beside, state.metric).length > 0) state = { ...state, beside: undefined };
  write(state);
  const to = (table: Shown) => show(moved(state, table), true);
  const width = Math.floor(page.clientWidth >= TWO_FROM_PX ? (page.clientWidth - GAP_PX) / 2 : page.clientWidth);
  const several = results.length > 1;
  return [
    el("h1", {}, several ? "Nostr wire formats, measured" : result.title),
    several && questions(state, show),
    selectors(state, show),
    el(
      "section",
      { id: "table", "aria-label": "formats × compressions" },
      el("h2", {}, several ? `${loadOf(table)} (${result.name})` : loadOf(table)),
      ...result.warnings.map((warning) => el("p", { class: "warning" }, warning)),
      ...table.answer.map((line) => el("p", { class: "answer" }, line)),
      metrics(state, show),
      heat(state, (cell) => show({ ...state, cell: cell === state.cell ? undefined : cell }, "cell")),
      el("p", { class: "note" }, result.headline),
      el("p", { class: "note" }, origin(result)),
    ),
    ...(cell ? [detail(table, cell, () => show({ ...state, cell: undefined }))] : []),
    charts(state, width, (mbit) => write((state = { ...state, mbit })), to),
    summary(result, !several, width),
    ...results.filter((other) => other.tables.length === 0).map((other) => summary(other, false, width)),
  ].filter((node) => node !== false);
}

/** Whose figures these are, and of what. */
const origin = ({ measured_by, source, machine, corpus }: Result) =>
  `Measured by ${measured_by ?? "whom is not stated"}; of ${source ?? "no known commit"}; ${machine}; events: ${corpus}.`;

/** Draws the selection, with the focus where it was, or at what was asked for. */
function show(state: State, goTo?: string | true) {
  const place = (element: Element | null) => [...page.querySelectorAll("button, select, input")].indexOf(element ?? page);
  const focused = place(document.activeElement);
  page.replaceChildren(...whole(state));
  const target = typeof goTo === "string" ? document.getElementById(goTo) : null;
  if (target instanceof HTMLDetailsElement) target.open = true;
  if (goTo === true) page.scrollIntoView();
  else target?.scrollIntoView({ block: goTo === "cell" ? "nearest" : "start" });
  page.querySelectorAll<HTMLElement>("button, select, input")[focused]?.focus({ preventScroll: true });
}

/** Of results without cells to compare: what their summaries say. */
function without(): Node[] {
  return results.flatMap((result) => [
    el("h1", {}, result.title),
    ...result.warnings.map((warning) => el("p", { class: "warning" }, warning)),
    el("p", {}, result.headline),
    summary(result, true, page.clientWidth),
  ]);
}

function again() {
  const state = read();
  if (state) show(state);
  else page.replaceChildren(...without());
}

again();
addEventListener("hashchange", again);
let drawn = page.clientWidth;
addEventListener("resize", () => {
  if (page.clientWidth !== drawn) again();
  drawn = page.clientWidth;
});
