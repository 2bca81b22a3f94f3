// Addresses: what stands behind the # names a page, its things and how its list is shown. So each can be shared.

import { decoded, encoded } from "/js/api.js";

/** The address of a page: `to("queues", vhost, name)`. */
export function to(...parts) {
  return `#/${parts.map(encoded).join("/")}`;
}

export function go(address) {
  location.hash = address;
}

/** Of the address as it is: `{parts, query}`. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: path.split("/").map(decoded), query: new URLSearchParams(query) };
}

/** Other values for the list that is shown; no step back in the browser's history. */
export function setQuery(changes) {
  const [path] = location.hash.split("?", 1);
  const { query } = here();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const said = query.toString();
  history.replaceState(null, "", said ? `${path || "#/"}?${said}` : path || "#/");
}

/** `routes`: `[pattern, page]`, where `:name` in a pattern is a part of the address. */
export function match(routes, parts) {
  for (const [pattern, page] of routes) {
    const wanted = pattern.split("/");
    if (wanted.length === parts.length && wanted.every((each, at) => each.startsWith(":") || each === parts[at])) {
      const named = wanted.map((each, at) => [
        each.slice(1),
        parts[at],
      ]).filter((_, at) => wanted[at].startsWith(":"));
      return { page, names: Object.fromEntries(named) };
    }
  }
  return null;
}
