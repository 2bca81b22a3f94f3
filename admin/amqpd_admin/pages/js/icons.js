// Icons: lines on a grid of 20, in the colour of the text.

import { svg } from "/js/elements.js";

const LINES = {
  overview: ["M3 16V9", "M8 16V4", "M13 16v-5", "M18 16V7"],
  queues: ["M3 5h14", "M3 10h14", "M3 15h8"],
  exchanges: ["M3 6h11", "M11 3l3 3-3 3", "M17 14H6", "M9 11l-3 3 3 3"],
  connections: ["M7 7l6 6", "M4 10a3 3 0 0 1 0-4l2-2a3 3 0 0 1 4 0", "M16 10a3 3 0 0 1 0 4l-2 2a3 3 0 0 1-4 0"],
  channels: ["M4 3v14", "M10 3v14", "M16 3v14", "M4 8h6", "M10 12h6"],
  consumers: ["M3 4h14v9H3z", "M10 7v9", "M7 13l3 3 3-3"],
  limits: ["M3 14a7 7 0 0 1 14 0", "M10 14l3-5", "M3 17h14"],
  definitions: ["M7 3c-2 0-2 1-2 3s0 4-2 4c2 0 2 2 2 4s0 3 2 3", "M13 3c2 0 2 1 2 3s0 4 2 4c-2 0-2 2-2 4s0 3-2 3"],
  users: ["M10 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6z", "M4 17c0-3 3-4.5 6-4.5s6 1.5 6 4.5"],
  vhosts: ["M3 4h14v5H3z", "M3 11h14v5H3z", "M6 6.500h1", "M6 13.500h1"],
  policies: ["M5 3h7l3 3v11H5z", "M8 9h4", "M8 12h4"],
  cluster: ["M8 3h4v4H8z", "M3 13h4v4H3z", "M13 13h4v4h-4z", "M10 7v3", "M5 13v-3h10v3"],
  log: ["M3 4h14v12H3z", "M6 8l2 2-2 2", "M10 12h4"],
  audit: ["M10 3l6 2v5c0 4-3 6-6 7-3-1-6-3-6-7V5z", "M7.500 10l2 2 3.500-4"],
  menu: ["M3 6h14", "M3 10h14", "M3 14h14"],
  theme: ["M10 3a7 7 0 1 0 0 14z", "M10 3a7 7 0 0 1 0 14"],
  leave: ["M8 4H4v12h4", "M8 10h9", "M14 7l3 3-3 3"],
  plus: ["M10 4v12", "M4 10h12"],
  search: ["M9 14A5 5 0 1 0 9 4a5 5 0 0 0 0 10z", "M13 13l4 4"],
  bin: ["M4 6h12", "M8 6V4h4v2", "M6 6l1 10h6l1-10"],
  close: ["M5 5l10 10", "M15 5L5 15"],
};

export function icon(name) {
  const lines = LINES[name].map((d) => svg("path", { d }));
  return svg("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" }, lines);
}

/** The broker's mark. */
export function mark() {
  return svg(
    "svg",
    { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true" },
    svg("rect", { class: "mark-ground", width: 32, height: 32, rx: 8 }),
    svg("path", { class: "mark-lines", d: "M7 11h11M7 16h18M7 21h7" }),
    svg("circle", { class: "mark-points", cx: 23.5, cy: 11, r: 2 }),
    svg("circle", { class: "mark-points", cx: 19.5, cy: 21, r: 2 }),
  );
}
