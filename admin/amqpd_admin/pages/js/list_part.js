// A list that the broker searches, sorts and cuts into pages. How it is shown stands in the address, to be shared.

import { button, el } from "/js/elements.js";
import { count, counted, name } from "/js/format.js";
import { get } from "/js/api.js";
import { Table } from "/js/table.js";

const PAGE_SIZE = 50;
const SEARCH_AFTER_MS = 250;

/**
 * `source(vhost)` is the path of the list; `fields` what is asked of each row. `vhosts`: whether it can be cut down
 * to one virtual host. `prefix` is before the names in the address: a page can have several lists. `empty()` is shown
 * when there is nothing at all. Gives `{bar, table, load(signal), show(found)}`.
 */
export function listPart(
  { query, setQuery, refresh },
  {
    nouns, source, fields = null, columns, key, label, empty, vhosts = false, sort = "name", prefix = "",
    searched = "by name",
  },
) {
  const [, many] = nouns;
  const said = (field) => query.get(prefix + field);
  let timer = 0;

  function change(changes) {
    clearTimeout(timer);
    // What was written a moment ago counts, too: whoever turns a page at once turns one of what was searched for.
    const all = { name: search.value, ...changes };
    const wanted = Object.entries(all).map(([field, value]) => [prefix + field, value]);
    setQuery(Object.fromEntries(wanted));
    for (const [field, value] of wanted) {
      if (value === null || value === "") query.delete(field);
      else query.set(field, String(value));
    }
    refresh();
  }

  const search = el("input", {
    type: "search",
    placeholder: `Search ${many} ${searched}`,
    "aria-label": `Search ${many} ${searched}`,
    "aria-keyshortcuts": prefix ? null : "/",
    set: { value: said("name") ?? "" },
    on: { input: later, keydown: escape },
  });

  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => change({ page: null }), SEARCH_AFTER_MS);
  }

  function escape(event) {
    if (event.key !== "Escape") return;
    if (search.value) all();
    else search.blur();
  }

  function all() {
    search.value = "";
    change({ page: null });
  }

  const table = new Table({
    columns,
    key,
    label,
    onSort: (by) => {
      const same = by === (said("sort") ?? sort);
      change({ sort: by, desc: same && said("desc") === null ? "1" : null, page: null });
    },
    empty: () => (said("name") ? nothingFound() : empty()),
  });

  function nothingFound() {
    return el(
      "div",
      { class: "empty" },
      el("p", { class: "empty-title" }, `No ${many} have this in ${searched === "by name" ? "their name" : "them"}`),
      button("Show all", all),
    );
  }

  const hosts = el(
    "select",
    { "aria-label": "Virtual host", hidden: true, on: { change: () => change({ vhost: hosts.value, page: null }) } },
  );
  const pager = new Pager((number) => change({ page: number === 1 ? null : String(number) }));
  const keyHint = prefix ? null : el("kbd", { "aria-hidden": "true" }, "/");
  const bar = el("div", { class: "bar" }, el("div", { class: "search" }, search, keyHint), hosts, pager.element);
  let named = null;

  async function load(signal) {
    if (vhosts && named === null) {
      named = (await get("vhosts", { columns: "name" }, signal)).map((each) => each.name);
      hostsOf(hosts, named, said("vhost") ?? "");
    }
    const asked = {
      page: said("page") ?? "1", page_size: PAGE_SIZE, name: said("name"), columns: fields,
      sort: said("sort") ?? sort, sort_reverse: said("desc") ? "true" : null,
    };
    const path = source(said("vhost") || null);
    try {
      return await get(path, asked, signal);
    } catch (error) {
      if (error.kind !== "page_out_of_range") throw error;
      setQuery({ [`${prefix}page`]: null });
      query.delete(`${prefix}page`);
      return get(path, { ...asked, page: "1" }, signal);
    }
  }

  function show(found) {
    table.sortedBy(said("sort") ?? sort, said("desc") !== null);
    table.show(found.items);
    pager.show(found, nouns);
  }

  return { bar, table, load, show };
}

function hostsOf(select, names, chosen) {
  const options = names.map((each) => el("option", { value: each }, name(each)));
  select.replaceChildren(el("option", { value: "" }, "All virtual hosts"), ...options);
  select.value = names.includes(chosen) ? chosen : "";
  select.hidden = names.length < 2;
}

/** How many there are, and one page after the other. */
class Pager {
  constructor(turn) {
    this.page = 1;
    this.said = el("span", { class: "quiet numbers" });
    this.back = button("Previous", () => turn(this.page - 1));
    this.on = button("Next", () => turn(this.page + 1));
    this.element = el("div", { class: "pager" }, this.said, this.back, this.on);
  }

  show(found, nouns) {
    const { page: number, page_count: pages, page_size: size, item_count: items, filtered_count: all } = found;
    this.page = number;
    const first = (number - 1) * size + 1;
    const part = `${count(first)} to ${count(first + items - 1)} of ${count(all)}`;
    const missing = found.nodes_missing ? `, without what ${found.nodes_missing.map(name).join(", ")} would say` : "";
    this.said.textContent = (all <= size ? counted(all, ...nouns) : part) + missing;
    this.back.disabled = number <= 1;
    this.on.disabled = number >= pages;
    this.back.hidden = this.on.hidden = pages <= 1;
  }
}
