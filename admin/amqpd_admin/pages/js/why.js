// Why a queue is as it is, in the broker's words.

import { get, path } from "/js/api.js";
import { el } from "/js/elements.js";
import { name } from "/js/format.js";
import { panel } from "/js/panels.js";

/** `load(signal)`, `show(found)`: redrawn when the sentences are others. */
export function whyPanel(vhost, queue) {
  const list = el("ul", { class: "why" });
  let before = "";
  return {
    element: panel({ title: "Why" }, list),
    load: (signal) => get(path`amqpd/why/queues/${vhost}/${queue}`, {}, signal),
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
