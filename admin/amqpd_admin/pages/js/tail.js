// What goes by, newest first: asked for from where it was asked for last, until somebody holds it.

import { get } from "/js/api.js";
import { button, el, write } from "/js/elements.js";
import { counted } from "/js/format.js";

const ASKED = 500;
const KEPT = 1000;
const SEARCH_AFTER_MS = 250;

/**
 * `source` is the path; `cells(row)` what is in a line; `kind(row)` its kind: "warn", "bad" or "". `choices`, if
 * there is one: `{field, label, options: [[value, text]]}`. `empty(searched)` is shown where there is nothing.
 * What is looked for stands in the address. Gives `{bar, element, load(signal), show(found)}`.
 */
export function tail(
  { query, setQuery, refresh }, { source, label, nouns, cells, kind, choices = null, empty },
) {
  let last = 0;
  let held = false;
  let timer = 0;
  const fields = ["search", ...(choices ? [choices.field] : [])];
  const list = el("ol", { class: `tail ${nouns[1]}`, "aria-label": label });
  const nothing = el("div", { class: "table-message" });
  const said = el("span", { class: "quiet numbers" });
  const search = el("input", {
    type: "search", placeholder: `Search ${nouns[1]}`, "aria-label": `Search ${nouns[1]}`, "aria-keyshortcuts": "/",
    maxlength: 200, set: { value: query.get("search") ?? "" }, on: { input: later },
  });
  const select = choices && el(
    "select",
    { "aria-label": choices.label, on: { change: again } },
    choices.options.map(([value, text]) => el("option", { value }, text)),
  );
  if (select) select.value = query.get(choices.field) ?? choices.options[0][0];
  const hold = button("Hold", () => holds(!held), { "aria-pressed": "false" });

  function later() {
    clearTimeout(timer);
    timer = setTimeout(again, SEARCH_AFTER_MS);
  }

  /** Something else is looked for: what is there is another list. */
  function again() {
    clearTimeout(timer);
    const wanted = { search: search.value, ...(select ? { [choices.field]: select.value } : {}) };
    setQuery(wanted);
    for (const field of fields) query.set(field, wanted[field]);
    last = 0;
    list.replaceChildren();
    holds(false);
  }

  function holds(wanted) {
    held = wanted;
    hold.setAttribute("aria-pressed", String(held));
    hold.textContent = held ? "Go on" : "Hold";
    refresh();
  }

  function load(signal) {
    if (held) return Promise.resolve(null);
    const asked = Object.fromEntries(fields.map((field) => [field, query.get(field)]));
    return get(source, { after: last, count: ASKED, ...asked }, signal);
  }

  function show(found) {
    if (found === null) return;
    const rows = found.items.map((row) => el("li", { class: `tail-row ${kind(row)}`.trim() }, cells(row))).reverse();
    if (last > 0 && found.missed) rows.push(gap(found.last < last));
    if (rows.length) list.prepend(...rows);
    while (list.childElementCount > KEPT) list.lastElementChild.remove();
    last = found.last;
    write(said, counted(list.childElementCount, ...nouns));
    nothing.replaceChildren(...(list.childElementCount === 0 ? [empty(search.value !== "")] : []));
  }

  const box = el("div", { class: "search" }, search, el("kbd", { "aria-hidden": "true" }, "/"));
  return {
    bar: el("div", { class: "bar" }, box, select, el("div", { class: "pager" }, said, hold)),
    element: el("div", { class: "table-box" }, list, nothing),
    load,
    show,
  };
}

function gap(restarted) {
  const text = restarted ? "The broker was started again." : "More came than is kept: some are missing here.";
  return el("li", { class: "tail-gap" }, text);
}

/** A moment by the clock and in the zone of who looks: it is compared with what other machines have written. */
export function time(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return el("time", {}, "");
  const two = (number, digits = 2) => String(number).padStart(digits, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return el("time", { datetime: text, title: text }, `${day} ${clock}.${two(at.getMilliseconds(), 3)} ${zone(at)}`);
}

/** How far the clock is ahead of UTC. */
function zone(at) {
  const minutes = -at.getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `${minutes < 0 ? "−" : "+"}${String(hours).padStart(2, "0")}:${String(rest).padStart(2, "0")}`;
}
