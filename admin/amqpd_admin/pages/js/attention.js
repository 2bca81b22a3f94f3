// What needs attention, of all nodes: the first panel of the overview; and the words for queues that are not well.

import { get } from "/js/api.js";
import { el, write } from "/js/elements.js";
import { moment, name } from "/js/format.js";
import { badge, panel } from "/js/panels.js";

const WORDS = { bad: "urgent", warn: "look" };

/** `{element, load(signal), show(found)}`: each a sentence that is a link to the page where somebody acts. */
export function attentionPanel() {
  const list = el("ul", { class: "needs" });
  const well = el("p", { class: "quiet" }, "Nothing: no alarm is on, and no queue waits for somebody.");
  // Rows are kept while they are about the same thing: figures change with each look, and a link stays pressed.
  let rows = new Map();
  return {
    element: panel({ title: "Needs attention" }, well, list),
    load: (signal) => get("amqpd/attention", {}, signal),
    show({ needs }) {
      well.hidden = needs.length > 0;
      list.hidden = needs.length === 0;
      const before = rows;
      rows = new Map();
      for (const need of needs) {
        let key = JSON.stringify([need.kind, need.severity, need.subject, need.link]);
        while (rows.has(key)) key += " again";
        rows.set(key, before.get(key) ?? row(need));
        write(rows.get(key).said, sentence(need));
      }
      const elements = [...rows.values()].map((each) => each.element);
      const there = list.children;
      const stay = elements.length === there.length && elements.every((each, at) => each === there[at]);
      if (!stay) list.replaceChildren(...elements);
    },
  };
}

function row(need) {
  const said = el("bdi", {});
  const link = el("a", { href: need.link }, said);
  return { element: el("li", {}, badge(WORDS[need.severity], need.severity), link), said };
}

function sentence({ says, since_ms: since }) {
  const said = name(says);
  const when = since === null ? "" : ` (since ${moment(since)})`;
  return `${said.charAt(0).toUpperCase()}${said.slice(1)}${when}.`;
}

/**
 * The state of a queue and what of it needs attention, as badges: `[[text, kind], ...]`. One that runs, in which
 * messages wait that nobody consumes, is not green, though somebody got one a moment ago.
 */
export function statesOf(row) {
  const wrong = row.attention ?? [];
  const runs = row.state === "running";
  const waits = row.messages_ready > 0 && row.consumers === 0;
  const state = runs && wrong.length ? [] : [[row.state, runs ? (waits ? "" : "good") : "warn"]];
  return [...state, ...wrong.map((each) => [each, "warn"])];
}

/** On a phone, where lists have no column of states: a mark that says what is wrong. */
export function mark(states) {
  const wrong = states.filter(([, kind]) => kind === "warn" || kind === "bad");
  if (wrong.length === 0) return null;
  const said = wrong.map(([text]) => text).join(", ");
  return el("span", { class: `wrong ${wrong[0][1]}`, role: "img", "aria-label": said, title: said });
}
