// Requests to the broker: the only ones that these pages make.

/** A refusal, or no answer (`status` 0). */
export class ApiError extends Error {
  constructor(status, kind, reason) {
    super(reason);
    this.status = status;
    this.kind = kind;
  }
}

let loggedOut = () => {};
let ahead = 0;

/** By how many ms the broker's clock is ahead of this one, to a second. */
export function brokerAhead() {
  return ahead;
}

/** What is done when the session has ended. */
export function whenLoggedOut(action) {
  loggedOut = action;
}

/**
 * JSON of the answer, or null without any. `sent` is a body that is JSON already; with `asText` the answer is not
 * read, which would round large numbers. Raises ApiError; AbortError when `signal` stops it.
 */
export async function ask(
  method, path, { body, sent, query, headers = {}, signal, stays = false, asText = false } = {},
) {
  const answer = await sending(method, path, { body, sent, query, headers, signal });
  const text = await arriving(answer.text());
  if (answer.ok && asText) return text;
  if (answer.ok) return text ? JSON.parse(text) : null;
  throw refused(answer, text, stays);
}

/**
 * A POST whose answer comes in lines of JSON while something is done: `told(line)` is told of each. Gives the last
 * one, which says that it is done. Raises ApiError, also of what fails on the way; AbortError when `signal` stops it.
 */
export async function askLines(path, { body, signal }, told) {
  const last = await streamed(path, { body, signal }, told);
  if (last?.error) throw new ApiError(0, last.error, last.reason);
  if (!last?.done) throw new ApiError(0, "unreachable", "The broker does not answer any more.");
  return last;
}

/**
 * The rows of a command (`routes/control.py`), as they come: `told(rows)`. Raises ApiError, also of what fails on the
 * way; AbortError when `signal` stops it.
 */
export async function commandRows(command, { body, signal }, told) {
  const last = await streamed(path`amqpd/control/${command}`, { body, signal }, (line) => told(line.rows ?? []));
  if (last?.ok === false) throw new ApiError(0, last.kind, `${capital(last.error)}.`);
  if (!last?.result) throw new ApiError(0, "unreachable", "The broker does not answer any more.");
}

const capital = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

/** The last line of the answer; null: there is none. */
async function streamed(path, { body, signal }, told) {
  const headers = { accept: "application/x-ndjson" };
  const answer = await sending("POST", path, { body, headers, signal });
  if (!answer.ok) throw refused(answer, await arriving(answer.text()), false);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let last = null;
  for (;;) {
    const { value, done } = await arriving(reader.read());
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      last = JSON.parse(line);
      told(last);
    }
  }
  return last;
}

async function sending(method, path, { body, sent, query, headers, signal }) {
  const content = body === undefined ? sent : JSON.stringify(body);
  const given = { "x-amqpd-pages": "1", ...headers };
  if (content !== undefined) given["content-type"] = "application/json";
  const answer = await arriving(fetch(`/api/${path}${queryOf(query)}`, {
    method,
    headers: given,
    body: content,
    credentials: "same-origin",
    cache: "no-store",
    signal,
  }));
  const date = Date.parse(answer.headers.get("date"));
  // Within what a header of whole seconds can say, they are the same.
  if (Number.isFinite(date)) ahead = Math.abs(date - Date.now()) < 2000 ? 0 : date - Date.now();
  return answer;
}

/** What the network brings. Raises ApiError when it brings nothing. */
async function arriving(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The broker does not answer.");
  }
}

function refused(answer, text, stays) {
  const said = refusalOf(text);
  if (answer.status === 401 && said.error === "not_authorized" && !stays) loggedOut();
  return new ApiError(answer.status, said.error ?? "", said.reason ?? `The broker answered ${answer.status}.`);
}

function refusalOf(text) {
  try {
    const said = JSON.parse(text) ?? {};
    // The reason is RabbitMQ's, for tools; where that is hard to read, the broker says it for people as well.
    return { ...said, reason: said.says ?? said.reason };
  } catch {
    return {};
  }
}

export function get(path, query, signal) {
  return ask("GET", path, { query, signal });
}

function queryOf(query) {
  const said = Object.entries(query ?? {}).filter(
    ([, value]) => value !== null && value !== undefined && value !== ""
  );
  return said.length ? `?${new URLSearchParams(said)}` : "";
}

/** Names as parts of a path. A browser takes "." and ".." for steps in it, whatever they are written as: ApiError. */
export function path(strings, ...names) {
  return strings.reduce((before, after, at) => before + part(names[at - 1]) + after);
}

export function part(given) {
  if (given === "." || given === "..") {
    throw new ApiError(0, "bad_name", `"${given}" cannot be a part of an address: use the command line for it.`);
  }
  return encoded(given);
}

/** Also of names that are no UTF-8: the API has their bytes as lone surrogates from U+DC80 on. */
export function encoded(given) {
  let found = "";
  for (const each of given) {
    const code = each.codePointAt(0);
    const byte = code >= 0xdc80 && code <= 0xdcff;
    found += byte ? `%${(code - 0xdc00).toString(16).toUpperCase()}` : encodeURIComponent(each);
  }
  return found;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Back from `encoded`. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text.replace(
      /(?:%[0-9a-fA-F]{2})+/g,
      (run) => textOf(run.match(/[0-9a-fA-F]{2}/g).map((each) => parseInt(each, 16))),
    );
  }
}

function textOf(octets) {
  for (let length = Math.min(octets.length, 4); length > 0; length -= 1) {
    try {
      const first = utf8.decode(new Uint8Array(octets.slice(0, length)));
      return first + (octets.length > length ? textOf(octets.slice(length)) : "");
    } catch {
      // Fewer bytes may be a character.
    }
  }
  return octets.length ? String.fromCharCode(0xdc00 + octets[0]) + textOf(octets.slice(1)) : "";
}

/** The default exchange has no name, and a path needs one. */
export function exchange(given) {
  return given === "" ? "amq.default" : given;
}
