// A page with a list: a search field, a table, and pages of it. The broker searches, sorts and cuts.

import { button, el } from "/js/elements.js";
import { count, counted } from "/js/format.js";
import { get } from "/js/api.js";
import { page } from "/js/panels.js";
import { Table } from "/js/table.js";

const PAGE_SIZE = 50;
const SEARCH_AFTER_MS = 250;

/**
 * `source(vhost)` is the path of the list; `fields` what is asked of each row. `vhosts`: whether it can be cut down
 * to one virtual host. `empty()` is shown when there is nothing at all.
 */
export function listPage(
  context,
  { title, nouns, source, fields, columns, key, actions = [], empty, vhosts = false, sort = "name", before = [] },
) {
  const { query, setQuery, refresh } = context;
  const [, many] = nouns;

  function change(changes) {
    setQuery(changes);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, String(value));
    }
    refresh();
  }

  const search = el("input", {
    type: "search",
    placeholder: `Search ${many} by name`,
    "aria-label": `Search ${many} by name`,
    "aria-keyshortcuts": "/",
    set: { value: query.get("name") ?? "" },
    on: { input: () => later(() => change({ name: search.value, page: null })), keydown: escape },
  });
  let timer = 0;

  function later(action) {
    clearTimeout(timer);
    timer = setTimeout(action, SEARCH_AFTER_MS);
  }

  function escape(event) {
    if (event.key !== "Escape") return;
    if (search.value) {
      search.value = "";
      change({ name: null, page: null });
    } else search.blur();
  }

  const table = new Table({
    columns,
    key,
    label: title,
    onSort: (by) => {
      const same = by === (query.get("sort") ?? sort);
      change({ sort: by, desc: same && query.get("desc") === null ? "1" : null, page: null });
    },
    empty: () => (query.get("name") ? nothingFound() : empty()),
  });

  function nothingFound() {
    const all = button("Show all", () => {
      search.value = "";
      change({ name: null, page: null });
    });
    return el(
      "div",
      { class: "empty" },
      el("p", { class: "empty-title" }, `No ${many} have this in their name`),
      all,
    );
  }

  const hosts = el(
    "select",
    { "aria-label": "Virtual host", hidden: true, on: { change: () => change({ vhost: hosts.value, page: null }) } },
  );
  const pager = new Pager((number) => change({ page: number === 1 ? null : String(number) }));
  const element = page(
    { title, actions },
    before,
    el("div", { class: "bar" }, el("div", { class: "search" }, search, el("kbd", {}, "/")), hosts, pager.element),
    table.element,
  );

  let named = null;

  async function load(signal) {
    if (vhosts && named === null) {
      named = (await get("vhosts", { columns: "name" }, signal)).map((each) => each.name);
      hostsOf(hosts, named, query.get("vhost") ?? "");
    }
    const by = query.get("sort") ?? sort;
    const asked = {
      page: query.get("page") ?? "1", page_size: PAGE_SIZE, name: query.get("name"), columns: fields, sort: by,
      sort_reverse: query.get("desc") ? "true" : null,
    };
    const path = source(query.get("vhost") || null);
    try {
      return await get(path, asked, signal);
    } catch (error) {
      if (error.kind !== "page_out_of_range") throw error;
      setQuery({ page: null });
      query.delete("page");
      return get(path, { ...asked, page: "1" }, signal);
    }
  }

  function show(found) {
    table.sortedBy(query.get("sort") ?? sort, query.get("desc") !== null);
    table.show(found.items);
    pager.show(found, nouns);
  }

  return { title, element, load, show };
}

function hostsOf(select, names, chosen) {
  const options = names.map((each) => el("option", { value: each }, each));
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

  show({ page: number, page_count: pages, page_size: size, item_count: items, filtered_count: all }, nouns) {
    this.page = number;
    const first = (number - 1) * size + 1;
    const part = `${count(first)} to ${count(first + items - 1)} of ${count(all)}`;
    this.said.textContent = all <= size ? counted(all, ...nouns) : part;
    this.back.disabled = number <= 1;
    this.on.disabled = number >= pages;
    this.back.hidden = this.on.hidden = pages <= 1;
  }
}
