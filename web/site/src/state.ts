// The selection, which location.hash keeps.

import { FACETS, KEYS, type Cell, type Metric, type Shown, has, tables } from "./data";

export interface State {
  table: Shown;
  metric: Metric;
  cell?: Cell;
  /** Beside which the table is shown. */
  beside?: Shown;
  /** Of the slider. */
  mbit: number;
}

/** The first: the widest that was measured at a limit. */
function first(): Shown | undefined {
  const size = (table: Shown) => (has(table, "rate") ? 1000 : 0) + table.cells.length;
  return tables.reduce<Shown | undefined>((best, table) => (best && size(best) >= size(table) ? best : table), undefined);
}

export function read(): State | undefined {
  const asked = new URLSearchParams(location.hash.slice(1));
  const of = (name: string) => tables.find((table) => table.id === asked.get(name));
  const table = of("table") ?? first();
  if (!table) return undefined;
  const metric = KEYS.find((key) => key === asked.get("metric")) ?? "rate";
  const mbit = Number(asked.get("mbit"));
  return settled({
    table,
    metric,
    cell: table.cells.find((cell) => cell.id === asked.get("cell")),
    beside: of("beside"),
    mbit: mbit >= 0.1 && mbit <= 1000 ? mbit : 10,
  });
}

/** With a metric that the table has. */
function settled(state: State): State {
  if (has(state.table, state.metric)) return state;
  return { ...state, metric: KEYS.find((key) => has(state.table, key)) ?? state.metric };
}

export function write({ table, metric, cell, beside, mbit }: State) {
  const kept = { table: table.id, metric, cell: cell?.id, beside: beside?.id, mbit: mbit === 10 ? undefined : String(mbit) };
  const parts = Object.entries(kept).filter((part): part is [string, string] => part[1] !== undefined);
  history.replaceState(null, "", `#${new URLSearchParams(parts)}`);
}

/** The table that has this value and is otherwise most like the one that is shown. */
export function nearest(table: Shown, facet: string, value: string): Shown {
  const likeness = (other: Shown) => FACETS.filter(([, of]) => of(other) === of(table)).length;
  const own = FACETS.find(([name]) => name === facet)?.[1];
  const having = tables.filter((other) => own?.(other) === value);
  return having.reduce((best, other) => (likeness(other) > likeness(best) ? other : best), having[0] ?? table);
}

/** The selection of another table: the same cell there. */
export function moved(state: State, table: Shown): State {
  const cell = table.cells.find((cell) => cell.id === state.cell?.id);
  return settled({ ...state, table, cell, beside: state.beside === table ? undefined : state.beside });
}
