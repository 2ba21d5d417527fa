type Child = Node | string | undefined | false;

/** An element; functions among its attributes are listeners. Text is never markup. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | boolean | undefined | ((event: Event) => void)> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (typeof value === "string") made.setAttribute(name, value);
  }
  made.append(...children.filter((child): child is Node | string => child !== undefined && child !== false));
  return made;
}

/** Text with `code` and **bold** of Markdown. */
export function marked(text: string): (Node | string)[] {
  return text.split(/(`[^`]*`|\*\*[^*]*\*\*)/).map((piece) => {
    if (/^`.*`$/.test(piece)) return el("code", {}, piece.slice(1, -1));
    return /^\*\*.*\*\*$/.test(piece) ? el("b", {}, piece.slice(2, -2)) : piece;
  });
}

/** A table of text; the first columns are names. */
export function grid(caption: string | undefined, headings: string[], rows: (Node | string)[][], names = 1): HTMLElement {
  const kind = (column: number) => (column < names ? "name" : undefined);
  const head = headings.map((heading, column) => el("th", { scope: "col", class: kind(column) }, ...marked(heading)));
  const body = rows.map((row) =>
    el("tr", {}, ...row.map((field, column) => {
      const content = typeof field === "string" ? marked(field) : [field];
      return column === 0 && names > 0
        ? el("th", { scope: "row", class: "name" }, ...content)
        : el("td", { class: kind(column) }, ...content);
    })),
  );
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
  if (caption) table.prepend(el("caption", {}, caption));
  // Wide tables scroll by themselves, by keyboard, too.
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption ?? "table" }, table);
}
