// How much of something is used, of how much there may be: a bar with words.

import { el, svg, write } from "/js/elements.js";

const NEAR = 0.8;

/** `show([{label, text, share, alarm}])`: a share of one is all of it; null: there is no bound. */
export function meters() {
  const element = el("div", { class: "meters" });
  let parts = [];
  return {
    element,
    show(rows) {
      if (parts.length !== rows.length) {
        parts = rows.map(() => meter());
        element.replaceChildren(...parts.map((each) => each.element));
      }
      rows.forEach((row, at) => parts[at].show(row));
    },
  };
}

function meter() {
  const label = el("span", {});
  const text = el("span", { class: "quiet numbers" });
  const used = svg("rect", { class: "meter-used", height: "100%", rx: 3 });
  const bar = svg("svg", { class: "meter-bar", "aria-hidden": "true" }, used);
  const element = el("div", { class: "meter" }, el("p", { class: "meter-text" }, label, text), bar);
  return {
    element,
    show(row) {
      write(label, row.label);
      write(text, row.text);
      const share = Math.min(1, Math.max(0, row.share ?? 0));
      used.setAttribute("width", `${(share * 100).toFixed(1)}%`);
      const state = row.alarm ? "bad" : share > NEAR ? "warn" : "";
      used.setAttribute("class", `meter-used ${state}`.trim());
    },
  };
}
