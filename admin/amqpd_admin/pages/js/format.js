// Numbers, sizes, times and names as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const NOTHING = "–";

export function count(value) {
  return Number.isFinite(value) ? whole.format(value) : NOTHING;
}

/** "1 message", "2 messages". */
export function counted(value, noun, plural = `${noun}s`) {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** Of a second: few digits below ten, none above. */
export function rate(value) {
  if (!Number.isFinite(value)) return NOTHING;
  return `${value !== 0 && Math.abs(value) < 10 ? tenth.format(value) : whole.format(value)}/s`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value) {
  if (!Number.isFinite(value)) return NOTHING;
  let unit = 0;
  let rest = value;
  while (rest >= 1024 && unit < UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit > 0 && rest < 100 ? tenth.format(rest) : whole.format(rest)} ${UNITS[unit]}`;
}

export function byteRate(value) {
  return Number.isFinite(value) ? `${bytes(value)}/s` : NOTHING;
}

/** The two largest units of a time. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return NOTHING;
  const seconds = Math.max(0, Math.round(ms / 1000));
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([value], at) => at === 0 || value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

/** The largest unit alone: for a column, where ages are compared. */
export function age(ms) {
  return duration(ms).split(" ").slice(0, 2).join(" ");
}

export function moment(ms) {
  return Number.isFinite(ms) ? new Date(ms).toLocaleString() : NOTHING;
}

// Characters that show nothing, or change how their neighbours are shown: a name must not look like another one.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]|^\s|\s$/gu;

/** A name from a client, with what cannot be seen written out. */
export function name(text) {
  return String(text).replace(UNSEEN, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

/** A value of a table of arguments. */
export function value(given) {
  return typeof given === "string" ? name(given) : name(JSON.stringify(given));
}

export function exchangeName(text) {
  return text === "" ? "(default exchange)" : name(text);
}
