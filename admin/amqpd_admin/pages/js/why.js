// Why things are as they are, in the broker's words.

import { get } from "/js/api.js";
import { el } from "/js/elements.js";
import { name } from "/js/format.js";
import { panel } from "/js/panels.js";

/**
 * `of()` is what is asked about, as a path; it may have none (ApiError). `load(signal)`, `show(found)`: redrawn when
 * the sentences are others. Its height is that of as many sentences as there were at most, with a line to spare, so
 * that what stands below stays where it is while figures change; a sentence more is news, and may move it.
 */
export function whyPanel(of, title = "Why") {
  const list = el("ul", { class: "why", tabindex: "0", role: "list", "aria-label": title });
  let before = "";
  let most = 0;
  let width = 0;

  function fit() {
    list.style.height = "";
    const line = parseFloat(getComputedStyle(list).lineHeight);
    list.style.height = `${Math.ceil(list.scrollHeight + line)}px`;
  }

  // Also when it comes into sight: what is not there has no height.
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width === width) return;
    width = contentRect.width;
    if (width > 0) fit();
  }).observe(list);

  return {
    element: panel({ title }, list),
    load: async (signal) => get(`amqpd/why/${of()}`, {}, signal),
    show({ why }) {
      const said = JSON.stringify(why);
      if (said === before) return;
      before = said;
      list.replaceChildren(...why.map((each) => el("li", {}, el("bdi", {}, sentence(each)))));
      if (why.length > most) {
        most = why.length;
        if (width > 0) fit();
      }
    },
  };
}

function sentence(text) {
  const said = name(text);
  return `${said.charAt(0).toUpperCase()}${said.slice(1)}.`;
}
