// A table that is drawn again every two seconds: rows are kept by their keys and cells by what they say, so that
// nothing jumps, and what is selected or focused stays so.

import { attribute, el } from "/js/elements.js";

const WAITING_ROWS = 3;

/**
 * `columns`: `{title, text(row), node(row), sort, kind}`. `text` says what is in a cell; with `node`, it says when
 * that has to be made again. `sort` is the API's name of what is sorted by. `kind`: "number", "name", "long" (breaks
 * anywhere), "secondary" (not on a phone), "end" (buttons). `width`: in pixels; a table with one has rows of one
 * line, and columns that do not move when others say more. `hint(row)`: what is cut off, for who points at it.
 */
export class Table {
  constructor({ columns, key, label, empty, onSort = null }) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.empty = empty;
    this.heads = columns.map((column) => this.#head(column, onSort));
    this.body = el("tbody");
    // On a phone a row that has buttons is a list of what is in it, so that they are in sight.
    const stacks = columns.some((column) => column.kind === "end");
    this.message = el("div", { class: "table-message" });
    this.element = el(
      "div",
      { class: "table-box" },
      el(
        "div",
        {
          class: stacks ? "table-scroll stacks" : "table-scroll", tabindex: "0", role: "region", "aria-label": label,
        },
        el(
          "table",
          { class: columns.some(({ width }) => width) ? "even" : null },
          el("colgroup", {}, columns.map(breadth)),
          el("thead", {}, el("tr", {}, this.heads)),
          this.body,
        ),
      ),
      this.message,
    );
    this.#wait();
  }

  #head(column, onSort) {
    const sort = { type: "button", class: "sort", on: { click: () => onSort(column.sort, column.kind) } };
    const inside = column.sort && onSort ? el("button", sort, column.title) : column.title;
    return el("th", { scope: "col", class: column.kind ?? null }, inside);
  }

  #wait() {
    for (let at = 0; at < WAITING_ROWS; at += 1) {
      const cells = this.columns.map((column) => el(
        "td",
        { class: column.kind ?? null },
        el("span", { class: "waiting" }),
      ));
      this.body.append(el("tr", { "aria-hidden": "true" }, cells));
    }
  }

  /** Which column the rows are sorted by, as the API names it. */
  sortedBy(sort, descending) {
    this.columns.forEach((column, at) => {
      const is = column.sort !== undefined && column.sort === sort;
      attribute(this.heads[at], "aria-sort", is ? (descending ? "descending" : "ascending") : null);
    });
  }

  show(found) {
    const seen = new Set();
    let place = this.body.firstElementChild;
    if (this.rows.size === 0) {
      this.body.replaceChildren();
      place = null;
    }
    for (const row of found) {
      const key = this.key(row);
      // What a broker lists twice is shown once: keys are for rows, and there is nothing to tell them apart.
      if (seen.has(key)) continue;
      seen.add(key);
      let held = this.rows.get(key);
      if (held === undefined) {
        held = this.#newRow();
        this.rows.set(key, held);
      }
      this.#fill(held, row);
      if (held.element === place) place = place.nextElementSibling;
      else this.body.insertBefore(held.element, place);
    }
    for (const [key, held] of this.rows) {
      if (!seen.has(key)) {
        held.element.remove();
        this.rows.delete(key);
      }
    }
    this.message.replaceChildren(...(seen.size === 0 ? [this.empty()] : []));
    this.element.dataset.rows = String(seen.size);
  }

  #newRow() {
    const cells = this.columns.map((column) => el("td", { class: column.kind ?? null, "data-title": column.title }));
    return { element: el("tr", {}, cells), cells, said: this.columns.map(() => null) };
  }

  #fill(held, row) {
    this.columns.forEach((column, at) => {
      const said = String(column.text(row));
      if (held.said[at] === said) return;
      held.said[at] = said;
      held.cells[at].replaceChildren(column.node ? column.node(row) : said);
      if (column.hint) held.cells[at].title = column.hint(row);
    });
  }
}

export function isNumber(kind) {
  return (kind ?? "").split(" ").includes("number");
}

/** A column is of this width, on a phone too if it is there. */
function breadth({ kind = null, width = null }) {
  const column = el("col", { class: kind });
  if (width !== null) column.style.width = `${width}px`;
  return column;
}

/** A cell with a link, its text from a client. */
export function link(href, text) {
  return el("a", { href }, el("bdi", {}, text));
}
