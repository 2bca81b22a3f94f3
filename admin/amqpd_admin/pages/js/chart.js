// A small chart of what was in the last minutes or hours, drawn in SVG. Now is at the right edge.

import { el, svg, write } from "/js/elements.js";
import { WINDOW_MS } from "/js/samples.js";

const HEIGHT = 132;
const EDGE = { top: 8, right: 4, bottom: 20, left: 52 };
// What the pages see themselves. A line is broken where nothing was seen for so long: the page was hidden, or another
// one was shown.
const OWN = { ms: WINDOW_MS, gap: 7000, ago: "5 min" };
const STEPS = [1, 2, 5, 10];

export class Chart {
  /** `series`: names; each has a colour by its place. `format` is for values. */
  constructor({ title, series, format }) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.samples = [];
    this.span = OWN;
    this.pointed = null;
    this.values = series.map(() => el("span", { class: "legend-value" }, "–"));
    const legend = series.map((name, at) => el(
      "li",
      {},
      el("span", { class: `swatch line-${at + 1}` }),
      name,
      this.values[at],
    ));
    this.picture = svg("svg", { class: "chart-picture", height: HEIGHT, role: "img", "aria-label": title });
    this.when = el("span", { class: "quiet small" }, "");
    this.element = el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, el("span", { class: "chart-title" }, title), this.when),
      this.picture,
      el("ul", { class: "legend" }, legend),
    );
    this.picture.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.picture.addEventListener("pointerleave", () => this.#point(null));
    new ResizeObserver(() => this.#draw()).observe(this.picture);
  }

  /** `samples` as of `samples.js`; `span` as of `spans.js`, or what the pages see themselves. */
  show(samples, span = null) {
    this.samples = samples;
    this.span = span === null ? OWN : {
      ms: span.age * 1000, gap: Math.max(OWN.gap, 2.5 * span.incr * 1000), ago: span.ago,
    };
    this.#draw();
  }

  #point(x) {
    this.pointed = x;
    this.#draw();
  }

  #draw() {
    const width = this.picture.clientWidth;
    if (width === 0) return;
    const inner = { width: width - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
    const end = this.samples.at(-1)?.at ?? Date.now();
    const seen = this.samples.filter((each) => each.at >= end - this.span.ms);
    const top = roundUp(Math.max(0, ...seen.flatMap((each) => each.values)));
    const x = (at) => EDGE.left + inner.width * (1 - (end - at) / this.span.ms);
    const y = (value) => EDGE.top + inner.height * (1 - value / top);
    const chosen = this.#chosen(seen, x);
    this.picture.replaceChildren(
      ...this.#grid(top, width, y),
      ...this.series.map((_, at) => svg("path", { class: `line line-${at + 1}`, d: this.#path(seen, at, x, y) })),
      ...(
        this.pointed !== null && chosen ? [svg(
          "path",
          { class: "pointer", d: `M${x(chosen.at)} ${EDGE.top}v${inner.height}` },
        )] : []
      ),
    );
    this.values.forEach((node, at) => write(node, chosen ? this.format(chosen.values[at]) : "–"));
    write(this.when, this.pointed !== null && chosen ? this.#moment(chosen.at) : `last ${this.span.ago}`);
    const said = this.series.map((name, at) => `${name} ${this.values[at].textContent}`).join(", ");
    this.picture.setAttribute("aria-label", `${this.title}: ${said}`);
  }

  /** The sample that is pointed at, or the newest. */
  #chosen(seen, x) {
    if (this.pointed === null) return seen.at(-1);
    const distance = (each) => Math.abs(x(each.at) - this.pointed);
    return seen.reduce((best, each) => (best && distance(best) <= distance(each) ? best : each), undefined);
  }

  #grid(top, width, y) {
    const lines = [0, top / 2, top].map((value) => [
      svg("path", { class: "grid", d: `M${EDGE.left} ${Math.round(y(value)) + 0.5}H${width - EDGE.right}` }),
      svg("text", { class: "axis", x: EDGE.left - 8, y: y(value) + 4, "text-anchor": "end" }, this.format(value)),
    ]);
    const times = [
      svg("text", { class: "axis", x: EDGE.left, y: HEIGHT - 4 }, `${this.span.ago} ago`),
      svg("text", { class: "axis", x: width - EDGE.right, y: HEIGHT - 4, "text-anchor": "end" }, "now"),
    ];
    return [...lines.flat(), ...times];
  }

  /** Of a day, the day too. */
  #moment(at) {
    const when = new Date(at);
    return this.span.ms > 12 * 3600 * 1000 ? when.toLocaleString() : when.toLocaleTimeString();
  }

  #path(seen, which, x, y) {
    let before = -Infinity;
    return seen
      .map(({ at, values }) => {
        const pen = at - before > this.span.gap ? "M" : "L";
        before = at;
        const place = `${x(at).toFixed(1)} ${y(values[which]).toFixed(1)}`;
        // A point of a line of one is seen only with a line to itself.
        return pen === "M" ? `M${place}L${place}` : `L${place}`;
      })
      .join("");
  }
}

/** 1, 2 or 5 times a power of ten, so that the axis is steady while values change a little. */
function roundUp(value) {
  if (value <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * STEPS.find((step) => step * power >= value);
}
