// What people and programs did to the broker, as the audit log records it.

import { el } from "/js/elements.js";
import { name } from "/js/format.js";
import { badge, empty, page, panel } from "/js/panels.js";
import { tail, time } from "/js/tail.js";

const REFUSED = new Set(["login_failed", "permission_refused"]);
// These are said elsewhere in the line.
const SAID = new Set(["number", "event", "time", "user", "address", "object", "vhost", "connection"]);

export function audit(context) {
  const off = el("div", { hidden: true }, panel(
    { title: "Nothing is recorded" },
    el("p", {}, "The setting audit.level is off: what people and programs do is written down nowhere."),
  ));
  const acts = tail(context, {
    source: "amqpd/audit",
    label: "Acts",
    nouns: ["act", "acts"],
    cells,
    kind: (row) => (isRefused(row) ? "warn" : ""),
    empty: (searched) => (searched
      ? empty("No such acts", "Nothing of the last acts is like this. Acts that come are shown here.")
      : empty("Nothing yet", "Nobody has changed anything or connected since the broker was started.")),
  });
  const element = page({ title: "Audit" }, el("p", { class: "quiet" }, ABOUT), off, acts.bar, acts.element);
  return {
    title: "Audit",
    element,
    load: acts.load,
    show(found) {
      if (found !== null) off.hidden = found.level !== "off";
      acts.show(found);
    },
  };
}

const ABOUT = "Who changed what, who connected, who was refused: the last acts. "
  + "The files of the audit log have all of them: amqpd audit show.";

function isRefused(row) {
  return REFUSED.has(row.event) || row.reason === "refused";
}

function cells(row) {
  const who = [row.user, row.address].filter(Boolean).map(name).join(" at ");
  const more = Object.entries(row).filter(([field, given]) => !SAID.has(field) && given !== null && given !== "");
  const about = [row.object, row.vhost && `in ${row.vhost}`].filter(Boolean).map(name).join(" ");
  const said = more.map(([field, given]) => `${field}=${name(given)}`).join(" ");
  return [
    time(row.time),
    badge(row.event.replaceAll("_", " "), isRefused(row) ? "warn" : ""),
    el(
      "div",
      { class: "tail-text" },
      el("strong", {}, el("bdi", {}, who || "the command line, or the broker itself")),
      about ? el("span", {}, " ", el("bdi", {}, about)) : null,
      said ? el("code", {}, el("bdi", {}, said)) : null,
    ),
  ];
}
