// Why things are as they are, in the broker's words.

import { get } from "/js/api.js";
import { el } from "/js/elements.js";
import { name } from "/js/format.js";
import { panel } from "/js/panels.js";

/**
 * `of()` is what is asked about, as a path; it may have none (ApiError). `load(signal)`, `show(found)`: redrawn when
 * the sentences are others.
 */
export function whyPanel(of, title = "Why") {
  const list = el("ul", { class: "why" });
  let before = "";
  return {
    element: panel({ title }, list),
    load: async (signal) => get(`amqpd/why/${of()}`, {}, signal),
    show({ why }) {
      const said = JSON.stringify(why);
      if (said === before) return;
      before = said;
      list.replaceChildren(...why.map((each) => el("li", {}, el("bdi", {}, sentence(each)))));
    },
  };
}

function sentence(text) {
  const said = name(text);
  return `${said.charAt(0).toUpperCase()}${said.slice(1)}.`;
}
