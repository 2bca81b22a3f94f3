// What was seen in the last minutes, for charts: kept while these pages are open, also while another page is shown.

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
