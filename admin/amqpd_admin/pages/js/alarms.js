// The strip of alarms above each page: since when, why, what it blocks, and the end of what an operator has set.

import { ask, brokerAhead, get, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { counted, duration, moment, name } from "/js/format.js";

/** `{element, load, show}` for `Live`; `refresh()` asks again at once. */
export function alarmStrip(who, refresh) {
  const element = el("div", { class: "alarms", role: "alert", hidden: true });
  const clears = who.tags.includes("administrator");
  let before = "";

  function show(rows) {
    element.hidden = rows.length === 0;
    // Redrawn when something else is to be said: a button that has the focus keeps it.
    const said = JSON.stringify(rows.map((row) => [line(row), row.clearable]));
    if (said === before) return;
    before = said;
    element.replaceChildren(...rows.map((row) => el(
      "div",
      { class: "alarm" },
      el("p", {}, el("strong", {}, title(row)), " ", el("bdi", {}, line(row))),
      clears && row.clearable && button("Clear", () => clear(row, refresh)),
    )));
  }

  return { element, load: (signal) => get("amqpd/alarms", {}, signal), show };
}

function title(row) {
  return `The ${name(row.name)} alarm is on.`;
}

/** Since when by the clock and the zone of who looks. */
function line(row) {
  const since = row.since_ms === null ? "" : ` since ${moment(row.since_ms)} (${minutes(row.since_ms)})`;
  const why = row.clearable ? "an operator has set it" : name(row.says ?? "");
  const where = `On node ${name(row.node)}${since}${why && `: ${why}`}.`;
  const what = row.blocked
    ? `${counted(row.blocked, "connection")} that ${row.blocked === 1 ? "publishes is" : "publish are"} blocked`
    : "Who publishes is blocked";
  return `${where} ${what}; consumers go on.`;
}

/** Not by the second: a reader of screens would be told each time. */
function minutes(ms) {
  const passed = Date.now() + brokerAhead() - ms;
  return passed < 60_000 ? "less than a minute" : duration(passed - (passed % 60_000));
}

async function clear(row, refresh) {
  const done = await confirm({
    title: `Clear the ${name(row.name)} alarm?`,
    lines: [`Clients may publish again on node ${name(row.node)}, unless another alarm is on there.`],
    action: "Clear the alarm",
    act: () => ask("DELETE", path`amqpd/alarms/${row.node}/${row.name}`),
  });
  if (done) {
    notice("The alarm was cleared.", "good");
    refresh();
  }
}
