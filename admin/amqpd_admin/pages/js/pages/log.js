// The broker's log, as it is written.

import { el } from "/js/elements.js";
import { name } from "/js/format.js";
import { badge, empty, page } from "/js/panels.js";
import { tail, time } from "/js/tail.js";

const LEVELS = [
  ["", "All levels"], ["info", "Info and above"], ["warning", "Warnings and errors"], ["error", "Errors"],
];
const KINDS = { warning: "warn", error: "bad", critical: "bad" };
// As logs.py writes them: the event, who says it, all else.
const LINE = /^event=("(?:[^"\\]|\\.)*"|\S*)(?: component=(\S+))?(?: (.*))?$/s;

export function log(context) {
  const lines = tail(context, {
    source: "amqpd/log",
    label: "Log",
    nouns: ["line", "lines"],
    cells,
    kind: (row) => KINDS[row.level] ?? "",
    choices: { field: "level", label: "Level", options: LEVELS },
    empty: (searched) => (searched || context.query.get("level")
      ? empty("No such lines", "Nothing that is kept of the log is like this. Lines that come are shown here.")
      : empty("Nothing yet", "The broker has not logged anything since it was started.")),
  });
  return {
    title: "Log", element: page({ title: "Log" }, lines.bar, lines.element), load: lines.load, show: lines.show,
  };
}

function cells(row) {
  const found = LINE.exec(row.text);
  const [, event, component, rest] = found ?? [null, row.text, "", ""];
  return [
    time(row.time),
    badge(row.level, KINDS[row.level]),
    el(
      "div",
      { class: "tail-text" },
      el("strong", {}, el("bdi", {}, name(unquoted(event)))),
      component ? el("span", { class: "quiet" }, ` ${name(component)}`) : null,
      rest ? el("code", {}, el("bdi", {}, name(rest))) : null,
    ),
  ];
}

function unquoted(text) {
  try {
    return text.startsWith('"') ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}
