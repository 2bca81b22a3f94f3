// What a definitions file would change: compared with the definitions that are there, section by section.

const SECTIONS = [
  ["vhosts", "virtual host", ["name"]],
  ["users", "user", ["name"]],
  ["permissions", "permission", ["vhost", "user"]],
  ["topic_permissions", "topic permission", ["vhost", "user", "exchange"]],
  ["global_parameters", "global parameter", ["name"]],
  ["parameters", "parameter", ["vhost", "component", "name"]],
  ["policies", "policy", ["vhost", "name"], "policies"],
  ["exchanges", "exchange", ["vhost", "name"]],
  ["queues", "queue", ["vhost", "name"]],
  ["bindings", "binding", ["vhost", "source", "destination", "destination_type", "routing_key", "arguments"]],
];
// An exchange or a queue that is there is never changed: the broker keeps its own.
const KEPT = new Set(["exchanges", "queues"]);

/** An object, of a text that people chose as a file. Raises Error with a reason. */
export function readDefinitions(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON.");
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) {
    throw new Error("This is not a file of definitions: it has no sections.");
  }
  if (!SECTIONS.some(([section]) => Array.isArray(found[section]))) {
    throw new Error("This is not a file of definitions: it has none of queues, exchanges, users and so on.");
  }
  return found;
}

/**
 * `[{noun, plural, added, changed, kept, same}]`, of each section that the file has; the first three are lists of
 * names, the last is a number. `vhost`: everything is taken as being in it; null for a whole broker.
 */
export function compare(file, now, vhost = null) {
  return SECTIONS.filter(([section]) => Array.isArray(file[section])).map(([section, noun, keys, plural]) => {
    const identity = (row) => canonical(keys.map((key) => (key === "vhost" ? (vhost ?? row.vhost) : row[key])));
    const known = new Map((now[section] ?? []).map((row) => [identity(row), row]));
    const found = { noun, plural: plural ?? `${noun}s`, added: [], changed: [], kept: [], same: 0 };
    for (const row of file[section]) {
      const held = known.get(identity(row));
      if (held === undefined) found.added.push(titleOf(row, keys));
      else if (agree(row, held)) found.same += 1;
      else found[KEPT.has(section) ? "kept" : "changed"].push(titleOf(row, keys));
    }
    return found;
  });
}

/** What both say is the same: a file may leave out what is as usual. */
function agree(row, held) {
  const same = (key) => canonical(plain(row[key])) === canonical(plain(held[key]));
  return Object.keys(row).every((key) => !(key in held) || same(key));
}

/** Tags are a list, or one text with commas. */
function plain(value) {
  return Array.isArray(value) && value.every((each) => typeof each === "string") ? value.join(",") : value;
}

function canonical(value) {
  return JSON.stringify(value, (_, each) =>
    each !== null && typeof each === "object" && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1)))
      : each,
  );
}

function titleOf(row, keys) {
  if (keys.includes("source")) return `${row.source} to ${row.destination}`;
  return keys.filter((key) => key !== "vhost").map((key) => row[key]).join(" ");
}
