// What was seen, for charts: by these pages while they are open, also while another one is shown, and by the broker
// before that.

import { brokerAhead } from "/js/api.js";

export const WINDOW_MS = 5 * 60 * 1000;
const SERIES_MAX = 50;

const held = new Map();

/** One more sample of a series of charts; all of them, the oldest first: `[{at, values}]`. */
export function sample(key, values) {
  const at = Date.now();
  const series = (held.get(key) ?? []).filter((each) => each.at > at - WINDOW_MS);
  series.push({ at, values });
  // Taken out and put in again: the first of the map is the one that nobody looked at for longest.
  held.delete(key);
  held.set(key, series);
  if (held.size > SERIES_MAX) held.delete(held.keys().next().value);
  return series;
}

/** Of a number that only grows: how much in a second, since the sample before. */
export function speed(series, pick) {
  const [before, now] = series.slice(-2);
  if (now === undefined) return 0;
  return Math.max(0, ((pick(now.values) - pick(before.values)) * 1000) / Math.max(1, now.at - before.at));
}

/** The broker's samples of some `x_details`, by this browser's clock, the oldest first; none where it has none. */
export function levels(details) {
  if (details.length === 0 || !details.every((each) => each?.samples)) return [];
  const [first] = details;
  return first.samples
    .map(({ timestamp }, at) => ({
      at: timestamp - brokerAhead(),
      values: details.map((each) => each.samples[at]?.sample ?? 0),
    }))
    // The newest may be of the end of a step that is not over.
    .filter((each) => each.at <= Date.now())
    .reverse();
}

/** The same of numbers that only grow: how much in a second. */
export function speeds(details) {
  const counts = levels(details);
  return counts.slice(1).map(({ at, values }, before) => ({
    at,
    values: values.map((_, which) => speed([counts[before], { at, values }], (each) => each[which])),
  }));
}

/** The broker's, and what these pages have seen since. */
export function joined(past, own) {
  const last = past.at(-1)?.at ?? -Infinity;
  return [...past, ...own.filter((each) => each.at > last)];
}
