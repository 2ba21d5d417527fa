"use strict";
document.documentElement.classList.add("js");
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
const same = cell => document.querySelectorAll(`[data-cell="${CSS.escape(cell)}"]`);
for (const mark of document.querySelectorAll(".mark")) {
  const title = mark.querySelector("title");
  const text = title.textContent;
  title.remove();
  mark.setAttribute("aria-label", text);
  const show = event => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 4)) + "px";
    tip.style.top = Math.max(4, event.clientY - box.height - 12) + "px";
    same(mark.dataset.cell).forEach(other => other.classList.add("on"));
  };
  const hide = () => {
    tip.hidden = true;
    same(mark.dataset.cell).forEach(other => other.classList.remove("on"));
  };
  mark.addEventListener("pointerenter", show);
  mark.addEventListener("pointerdown", show);
  mark.addEventListener("pointerleave", hide);
}
for (const row of document.querySelectorAll("tr[data-cell]")) {
  row.addEventListener("pointerenter", () => same(row.dataset.cell).forEach(other => other.classList.add("on")));
  row.addEventListener("pointerleave", () => same(row.dataset.cell).forEach(other => other.classList.remove("on")));
}
for (const table of document.querySelectorAll("table")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    let down = false;
    head.addEventListener("click", () => {
      const body = table.tBodies[0];
      const key = row => row.cells[column].textContent;
      const number = row => parseFloat(key(row).replace(/[^0-9.]*([0-9][0-9,.]*).*/, "$1").replaceAll(",", ""));
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [number(a), number(b)];
        return Number.isNaN(x) || Number.isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
      });
      if (down) rows.reverse();
      down = !down;
      body.append(...rows);
    });
  });
}
