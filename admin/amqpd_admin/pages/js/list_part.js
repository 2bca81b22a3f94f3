// A list that the broker searches, sorts and cuts into pages. How it is shown stands in the address, to be shared.

import { button, el } from "/js/elements.js";
import { count, counted, name } from "/js/format.js";
import { get } from "/js/api.js";
import { keepVhost, keptVhost } from "/js/kept_vhost.js";
import { isNumber, Table } from "/js/table.js";

const PAGE_SIZE = 50;
const SEARCH_AFTER_MS = 250;

/**
 * `source(vhost)` is the path of the list; `fields` what is asked of each row. `vhosts`: whether it can be cut down
 * to one virtual host, which other lists keep. `filters`: what rows can be cut down to, `[[value, text], ...]` of the
 * API's parameter `only`. `acts`: an element behind these, of what is done with the whole list. `prefix` is before
 * the names in the address: a page can have several lists. `empty()` is shown when there is nothing at all. Gives
 * `{bar, table, load(signal), show(found)}`.
 */
export function listPart(
  { query, setQuery, refresh },
  {
    nouns, source, fields = null, columns, key, label, empty, vhosts = false, sort = "name", prefix = "",
    searched = "by name", filters = [], acts = null,
  },
) {
  const [, many] = nouns;
  const said = (field) => query.get(prefix + field);
  let timer = 0;
  let refused = null;

  // An address that says nothing of its list is that of the navigation.
  if (vhosts && query.size === 0 && keptVhost() !== null) {
    setQuery({ [`${prefix}vhost`]: keptVhost() });
    query.set(`${prefix}vhost`, keptVhost());
  }

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

  /** What was written a moment ago counts for what is done with the list, too. */
  function settle() {
    if (search.value !== (said("name") ?? "")) change({ page: null });
  }

  function escape(event) {
    if (event.key !== "Escape") return;
    if (search.value) all();
    else search.blur();
  }

  function all() {
    search.value = "";
    regex.setAttribute("aria-pressed", "false");
    for (const each of only) each.setAttribute("aria-pressed", "false");
    change({ page: null, regex: null, only: null });
  }

  const press = (button, pressed) => button.setAttribute("aria-pressed", String(pressed));
  const isPressed = (button) => button.getAttribute("aria-pressed") === "true";
  const regex = button(".*", () => {
    press(regex, !isPressed(regex));
    change({ regex: isPressed(regex) ? "1" : null, page: null });
  }, { kind: "regex", "aria-pressed": String(said("regex") !== null), "aria-label": "Regular expression",
    title: "What is searched for is a regular expression" });
  const chosen = new Set((said("only") ?? "").split(","));
  const only = filters.map(([value, text]) => {
    const each = button(text, () => {
      press(each, !isPressed(each));
      const wanted = filters.filter((_, at) => isPressed(only[at])).map(([name]) => name).join(",");
      change({ only: wanted || null, page: null });
    }, { kind: "filter", "aria-pressed": String(chosen.has(value)) });
    return each;
  });

  const table = new Table({
    columns,
    key,
    label,
    onSort: (by, kind) => {
      const same = by === (said("sort") ?? sort);
      // Of numbers the largest are looked for, of names the first.
      const descends = same ? said("desc") === null : isNumber(kind);
      change({ sort: by, desc: descends ? "1" : null, page: null });
    },
    empty: () => (said("name") || said("only") ? nothingFound() : empty()),
  });

  function nothingFound() {
    return el(
      "div",
      { class: "empty" },
      el("p", { class: "empty-title" }, nothingSaid()),
      refused !== null && el("p", { class: "quiet" }, el("bdi", {}, refused)),
      button("Show all", all),
    );
  }

  function nothingSaid() {
    if (refused !== null) return "This is no regular expression";
    if (said("only")) return `No ${many} are like this`;
    return `No ${many} have this in ${searched === "by name" ? "their name" : "them"}`;
  }

  const hosts = el("select", { "aria-label": "Virtual host", hidden: true, on: { change: host } });

  function host() {
    keepVhost(hosts.value);
    change({ vhost: hosts.value, page: null });
  }

  const pager = new Pager((number) => change({ page: number === 1 ? null : String(number) }));
  const keyHint = prefix ? null : el("kbd", { "aria-hidden": "true" }, "/");
  acts?.addEventListener("click", settle, { capture: true });
  const bar = el(
    "div",
    { class: "bar" },
    el("div", { class: "search" }, search, keyHint, regex),
    hosts,
    only.length > 0 && el("div", { class: "filters", role: "group", "aria-label": `Only ${many}` }, only),
    acts,
    pager.element,
  );
  let named = null;

  async function load(signal) {
    if (vhosts && named === null) {
      named = (await get("vhosts", { columns: "name" }, signal)).map((each) => each.name);
      hostsOf(hosts, named, said("vhost") ?? "");
    }
    const asked = {
      page: said("page") ?? "1", page_size: PAGE_SIZE, name: said("name"), columns: fields,
      sort: said("sort") ?? sort, sort_reverse: said("desc") ? "true" : null, only: said("only"),
      use_regex: said("regex") && said("name") ? "true" : null,
    };
    refused = null;
    const path = source(said("vhost") || null);
    try {
      return await get(path, asked, signal);
    } catch (error) {
      if (asked.use_regex && error.status === 400 && error.kind === "bad_request") {
        refused = error.message;
        return { items: [], page: 1, page_count: 0, page_size: PAGE_SIZE, item_count: 0, filtered_count: 0 };
      }
      if (error.kind !== "page_out_of_range") throw error;
      setQuery({ [`${prefix}page`]: null });
      query.delete(`${prefix}page`);
      return get(path, { ...asked, page: "1" }, signal);
    }
  }

  function show(found) {
    // Where all rows say the same, the column says nothing.
    table.element.classList.toggle("one-vhost", vhosts && (hosts.hidden || Boolean(said("vhost"))));
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
