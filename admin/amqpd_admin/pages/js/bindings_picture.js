// The bindings of an exchange as a picture: the exchange, a line with a routing key for each binding, where it ends.
// What is drawn is the page of the list: search and pages cut 10,000 of them down to what can be seen.

import { el, svg } from "/js/elements.js";
import { name } from "/js/format.js";
import { to } from "/js/router.js";

const ROW = 34;
const BOX = 26;
// The exchange stands in the middle, and in sight where there are many lines.
const CENTRE_MAX = 240;
const NARROW = 560;
// As wide as a character is at most, in the two fonts of the picture.
const WIDTH_OF = { text: 7.4, code: 7.6 };

export class BindingsPicture {
  constructor(shown) {
    this.shown = shown;
    this.rows = [];
    this.drawn = "";
    this.picture = svg("svg", { class: "bindings-picture", role: "group", "aria-label": `Bindings of ${shown}` });
    this.element = el("div", { class: "picture-box", hidden: true }, this.picture);
    new ResizeObserver(() => this.#draw()).observe(this.element);
  }

  /** Bindings, as the API lists them. */
  show(rows) {
    this.rows = rows;
    this.#draw();
  }

  #draw() {
    const width = this.element.clientWidth;
    if (width === 0) return;
    // Of the same width and bindings it is the same: focus and what is pointed at stay.
    const said = JSON.stringify([width, this.rows]);
    if (said === this.drawn) return;
    this.drawn = said;
    const ends = endsOf(this.rows);
    const height = Math.max(1, this.rows.length) * ROW;
    const narrow = width < NARROW;
    const place = {
      left: Math.round(width * (narrow ? 0.26 : 0.22)), right: Math.round(width * (narrow ? 0.66 : 0.68)),
      centre: Math.min(height / 2, CENTRE_MAX),
    };
    this.picture.setAttribute("height", String(height));
    this.picture.toggleAttribute("hidden", this.rows.length === 0);
    let at = 0;
    const parts = ends.map((end) => {
      const first = at;
      at += end.keys.length;
      return this.#end(end, first, place, width);
    });
    this.picture.replaceChildren(
      ...parts.map((each) => each.lines).flat(),
      ...parts.map((each) => each.labels).flat(),
      ...parts.map((each) => each.box),
      box({ x: 1, y: place.centre - BOX / 2, width: place.left - 1, height: BOX, text: this.shown, kind: "own" }),
    );
  }

  /** One thing that messages go to: as high as it has bindings, with a line for each. */
  #end({ type, destination, vhost, keys }, first, { left, right, centre }, width) {
    const lines = [];
    const labels = [];
    const middle = (left + right) / 2;
    const bend = left + (right - left) * 0.22;
    keys.forEach((row, at) => {
      const y = (first + at + 0.5) * ROW;
      const way = `M${left} ${centre}C${bend} ${centre} ${bend} ${y} ${middle} ${y}H${right}`;
      lines.push(svg("path", { class: "binding-line", d: way }));
      const text = name(row.routing_key) + (Object.keys(row.arguments).length ? " +" : "");
      if (text) labels.push(label(text, left + (right - left) * 0.62, y, (right - left) * 0.7));
    });
    const target = {
      x: right, y: first * ROW + (ROW - BOX) / 2, width: width - right - 1, height: keys.length * ROW - (ROW - BOX),
      text: name(destination), kind: type,
    };
    return { lines, labels, box: svg("a", { href: to(`${type}s`, vhost, destination) }, box(target)) };
  }
}

/** By what they end at: `{type, destination, vhost, keys}`, in the order of names. */
function endsOf(rows) {
  const found = new Map();
  for (const row of rows) {
    const key = JSON.stringify([row.destination_type, row.destination]);
    if (!found.has(key)) {
      found.set(key, { type: row.destination_type, destination: row.destination, vhost: row.vhost, keys: [] });
    }
    found.get(key).keys.push(row);
  }
  return [...found.values()];
}

function box({ x, y, width, height, text, kind }) {
  return svg(
    "g",
    { class: `picture-end ${kind}` },
    svg("rect", { x, y, width, height, rx: 6 }),
    svg("text", { x: x + 10, y: y + height / 2 + 5 }, fitting(text, width - 20, WIDTH_OF.text)),
    svg("title", {}, kind === "own" ? text : `${kind} ${text}`),
  );
}

function label(text, x, y, width) {
  return svg(
    "g",
    { class: "binding-key" },
    svg("text", { x, y: y + 4, "text-anchor": "middle" }, fitting(text, width, WIDTH_OF.code)),
    svg("title", {}, text),
  );
}

function fitting(text, width, each) {
  const most = Math.max(3, Math.floor(width / each));
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}
