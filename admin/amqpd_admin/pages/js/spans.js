// How far back charts go: chosen once for all pages, and kept by the browser.

import { el } from "/js/elements.js";

const KEPT = "amqpd-span";
// As the broker keeps samples: the further back, the fewer.
const SPANS = {
  minute: { text: "1 min", ago: "1 min", age: 60, incr: 5 },
  minutes: { text: "10 min", ago: "10 min", age: 600, incr: 10 },
  hour: { text: "1 h", ago: "1 hour", age: 3600, incr: 60 },
  day: { text: "1 day", ago: "1 day", age: 86400, incr: 1800 },
};

/** What is chosen (`span`), and the control with which it is; `changed` is told of another one. */
export function spanSwitch(changed) {
  let now = kept();
  const choices = Object.entries(SPANS).map(([name, { text }]) =>
    el("button", { type: "button", "aria-pressed": String(name === now), on: { click: () => choose(name) } }, text),
  );

  function choose(name) {
    now = name;
    try {
      localStorage.setItem(KEPT, name);
    } catch {
      // It is not kept, then.
    }
    Object.keys(SPANS).forEach((each, at) => choices[at].setAttribute("aria-pressed", String(each === name)));
    changed();
  }

  return {
    element: el("div", { class: "switch", role: "group", "aria-label": "How far back charts go" }, choices),
    get span() {
      return SPANS[now];
    },
  };
}

/** What a request says to get the samples of a span. */
export function samplesOf({ age, incr }) {
  return { lengths_age: age, lengths_incr: incr, msg_rates_age: age, msg_rates_incr: incr };
}

function kept() {
  try {
    const name = localStorage.getItem(KEPT);
    return Object.hasOwn(SPANS, name) ? name : "minutes";
  } catch {
    return "minutes";
  }
}
