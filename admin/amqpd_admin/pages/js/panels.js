// Parts that pages are made of: heads, panels, tiles with numbers, facts, badges; and what is shown for nothing.

import { el, write } from "/js/elements.js";
import { name, value } from "/js/format.js";

/** A page: `up` is `{href, text}` of the list that it is of. */
export function page({ title, up = null, badges = null, actions = [] }, ...children) {
  return el(
    "article",
    { class: "page", "aria-busy": "true" },
    el(
      "header",
      { class: "page-head" },
      el(
        "div",
        { class: "page-title" },
        up && el("a", { class: "up", href: up.href }, `← ${up.text}`),
        el("h1", {}, el("bdi", {}, title)),
        badges,
      ),
      el("div", { class: "actions" }, actions),
    ),
    children,
  );
}

export function panel({ title, actions = [], note = null, kind = "" }, ...children) {
  return el(
    "section",
    { class: `panel ${kind}`.trim() },
    el("div", { class: "panel-head" }, el("h2", {}, title), el("div", { class: "actions" }, actions)),
    note && el("p", { class: "quiet panel-note" }, note),
    children,
  );
}

/** Numbers side by side: `show([...])` in the order of `names`. */
export function tiles(names) {
  const values = names.map(() => el("dd", {}, "\u2007"));
  const element = el(
    "dl",
    { class: "tiles" },
    names.map((each, at) => el("div", { class: "tile" }, el("dt", {}, each), values[at])),
  );
  return {
    element,
    show(texts) {
      texts.forEach((text, at) => write(values[at], text));
    },
  };
}

/** Names and values, one below the other; a value is a text or a node. Redrawn when one of them is another. */
export function facts() {
  const element = el("dl", { class: "facts" });
  let before = "";
  return {
    element,
    show(rows) {
      const said = JSON.stringify(rows.map(
        ([name, given]) => [name, given instanceof Node ? given.textContent : given]
      ));
      if (said === before) return;
      before = said;
      element.replaceChildren(...rows.map(
        ([name, given]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("bdi", {}, given)))
      ));
    },
  };
}

/** A table of arguments as text, one in a line. */
export function argumentList(given) {
  const names = Object.keys(given ?? {});
  if (names.length === 0) return el("span", { class: "quiet" }, "none");
  return el(
    "span",
    { class: "arguments" },
    names.map((each) => el("span", { class: "argument" }, `${value(each)} = ${value(given[each])}`)),
  );
}

export function badge(text, kind = "") {
  return el("span", { class: `badge ${kind}`.trim() }, text);
}

/** Several, redrawn when they are others: `show([[text, kind], ...])`. */
export function badges() {
  const element = el("span", { class: "badges" });
  let before = "";
  return {
    element,
    show(rows) {
      const said = JSON.stringify(rows);
      if (said === before) return;
      before = said;
      element.replaceChildren(...rows.map(([text, kind]) => badge(text, kind)));
    },
  };
}

/** To the list that says what it sets. */
export function policyLink(given, kind = null) {
  const asked = new URLSearchParams({ ...(kind ? { kind } : {}), name: given });
  return el("a", { href: `#/policies?${asked}` }, el("bdi", {}, name(given)));
}

/** Links to kinds of one list: `[address, text, whether it is shown]`. */
export function tabs(rows) {
  return el(
    "nav",
    { class: "tabs", "aria-label": "Kinds" },
    rows.map(([href, text, shown]) => el("a", { href, "aria-current": shown ? "page" : null }, text)),
  );
}

/** Nothing is there: what it is for, and what to do next. */
export function empty(title, text, action = null) {
  return el(
    "div",
    { class: "empty" },
    el("p", { class: "empty-title" }, title),
    el("p", { class: "quiet" }, text),
    action,
  );
}

export function notFound(reason, href, text) {
  return el("div", { class: "panel" }, empty("Not here", reason, el("a", { class: "button", href }, text)));
}

export function failure(reason) {
  return el("div", { class: "panel" }, empty("This cannot be shown", reason));
}
