// Tables that sort by a click on a heading, filter by a text, and show long lists on request.

function cellKey(row, column, kind) {
  const cell = row.cells[column];
  const text = cell.dataset.v ?? cell.textContent.trim();
  if (kind !== "number") return text.toLowerCase();
  if (text === "inf") return Infinity;
  if (text === "-inf") return -Infinity;
  return text === "" || text === "None" ? NaN : Number(text);
}

function compareKeys(a, b) {
  const missing = Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  if (missing) return missing; // what is not known comes last in either order
  return a < b ? -1 : a > b ? 1 : 0;
}

class SmartTable {
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    this.rows = [...this.body.rows];
    this.shown = Number(table.dataset.shown || Infinity);
    this.text = "";
    this.foot = element("div", { class: "table-foot" });
    this.count = element("span", { role: "status" });
    this.more = element("button", { type: "button", class: "quiet" }, "Show all");
    this.more.addEventListener("click", () => { this.shown = Infinity; this.update(); });
    this.foot.append(this.count, this.more);
    table.closest(".scroll").after(this.foot);
    for (const button of table.querySelectorAll(".sort")) {
      button.addEventListener("click", () => this.sort(button));
    }
    this.update();
  }

  sort(button) {
    const head = button.closest("th");
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const column = head.cellIndex;
    const keyed = this.rows.map((row) => [cellKey(row, column, button.dataset.kind), row]);
    const sign = direction === "ascending" ? 1 : -1;
    keyed.sort(([a], [b]) => {
      const unknown = Number.isNaN(a) || Number.isNaN(b);
      return (unknown ? 1 : sign) * compareKeys(a, b);
    });
    this.rows = keyed.map(([, row]) => row);
    this.body.append(...this.rows);
    this.update();
  }

  filter(text) {
    this.text = text.trim().toLowerCase();
    this.update();
  }

  update() {
    let matching = 0;
    for (const row of this.rows) {
      const matches = !this.text || row.textContent.toLowerCase().includes(this.text);
      matching += matches;
      row.hidden = !matches || matching > this.shown;
    }
    const visible = Math.min(matching, this.shown);
    this.count.textContent = this.rows.length > 12 || this.text
      ? `${visible.toLocaleString("en")} of ${matching.toLocaleString("en")} rows` : "";
    this.more.hidden = visible >= matching;
    this.foot.hidden = !this.count.textContent && this.more.hidden;
  }
}

function startTables() {
  const tables = new Map();
  for (const table of document.querySelectorAll("table[id]")) tables.set(table.id, new SmartTable(table));
  for (const input of document.querySelectorAll("[data-filters]")) {
    input.addEventListener("input", () => tables.get(input.dataset.filters).filter(input.value));
  }
}
