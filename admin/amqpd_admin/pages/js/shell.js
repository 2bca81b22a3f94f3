// What is around each page: the navigation, who is logged in, light or dark, and a line for trouble.

import { button, el } from "/js/elements.js";
import { name } from "/js/format.js";
import { icon, mark } from "/js/icons.js";

/** `[place, text, icon, whose tag it is for]`, in groups; without the last one it is for all. */
const GROUPS = [
  [["", "Overview", "overview"]],
  [
    ["queues", "Queues", "queues"],
    ["exchanges", "Exchanges", "exchanges"],
    ["connections", "Connections", "connections"],
    ["channels", "Channels", "channels"],
    ["consumers", "Consumers", "consumers"],
  ],
  [
    ["users", "Users", "users", "administrator"],
    ["vhosts", "Virtual hosts", "vhosts"],
    ["policies", "Policies", "policies"],
    ["limits", "Limits", "limits"],
    ["definitions", "Definitions", "definitions", "administrator"],
  ],
  [
    ["cluster", "Cluster", "cluster", "monitoring"],
    ["log", "Log", "log", "monitoring"],
    ["audit", "Audit", "audit", "monitoring"],
  ],
];
const THEMES = { "": "System", light: "Light", dark: "Dark" };

/** `above` is an element above each page. */
export function shell(who, { logOut, above }) {
  const groups = GROUPS.map((group) =>
    group
      .filter(([, , , tag]) => tag === undefined || who.tags.includes(tag) || who.tags.includes("administrator"))
      .map(([place, text, image]) => el("a", { href: `#/${place}`, "data-place": place }, icon(image), text)),
  );
  const links = groups.flat();
  const menu = button("", () => open(side.dataset.open !== "true"), {
    kind: "plain menu",
    icon: icon("menu"),
    "aria-label": "Navigation",
    "aria-expanded": "false",
    "aria-controls": "side",
  });
  const outlet = el("main", { class: "outlet", id: "content", tabindex: "-1" });
  const trouble = el("p", { class: "trouble", role: "alert", hidden: true });
  const side = el(
    "header",
    { class: "side", id: "side" },
    el("a", { class: "brand", href: "#/" }, mark(), "amqpd"),
    el("nav", { "aria-label": "Pages" }, groups.map((group) => el("div", { class: "nav-group" }, group))),
    el(
      "div",
      { class: "side-foot" },
      el(
        "div",
        { class: "who" },
        icon("users"),
        el("span", { class: "who-name", title: name(who.name) }, name(who.name)),
      ),
      el("p", { class: "quiet small" }, who.tags.join(", ")),
      themes(),
      button("Log out", logOut, { kind: "plain", icon: icon("leave") }),
    ),
  );

  function open(wanted) {
    side.dataset.open = String(wanted);
    menu.setAttribute("aria-expanded", String(wanted));
  }

  const element = el(
    "div",
    { class: "frame" },
    el(
      "a",
      { class: "skip", href: "#content", on: { click: (event) => (event.preventDefault(), outlet.focus()) } },
      "Skip to the content",
    ),
    el("div", { class: "top" }, menu, el("a", { class: "brand", href: "#/" }, mark(), "amqpd")),
    side,
    el("div", { class: "veil", on: { click: () => open(false) } }),
    el("div", { class: "content" }, above, trouble, outlet),
  );
  element.addEventListener("keydown", (event) => event.key === "Escape" && open(false));

  return {
    element,
    show(page) {
      open(false);
      outlet.replaceChildren(page);
      window.scrollTo(0, 0);
    },
    /** The keyboard goes on from the beginning of the page. */
    focus() {
      outlet.focus({ preventScroll: true });
    },
    /** Which link is that of this page. */
    mark(place) {
      for (const link of links) {
        if (link.dataset.place === place) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
    },
    /** One line above the page; null for none. */
    trouble(text) {
      trouble.hidden = text === null;
      trouble.textContent = text ?? "";
    },
  };
}

/** Light, dark, or as the system has it. */
function themes() {
  const now = document.documentElement.dataset.theme ?? "";
  const choices = Object.entries(THEMES).map(([theme, text]) =>
    el("button", { type: "button", "aria-pressed": String(theme === now), on: { click: () => choose(theme) } }, text),
  );

  function choose(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("amqpd-theme", theme);
    } catch {
      // It is not kept, then.
    }
    Object.keys(THEMES).forEach((each, at) => choices[at].setAttribute("aria-pressed", String(each === theme)));
  }

  return el("div", { class: "switch", role: "group", "aria-label": "Colours" }, choices);
}
