// What a policy would match: asked of the broker while the pattern is written, some hundred names in each answer.

import { get, path } from "/js/api.js";
import { el } from "/js/elements.js";
import { count, counted, name } from "/js/format.js";

const PAGE_SIZE = 500;
// Enough names to see what a pattern does; beyond it stands "or more".
const NAMES_MAX = 5000;
const SHOWN_MAX = 12;
const AFTER_MS = 300;
const TYPES = { classic_queues: "classic", quorum_queues: "quorum" };

/**
 * `{names, more}`: queues and exchanges in the virtual host that the pattern matches, each `[kind, name]`. Raises
 * ApiError, also for a pattern that lists do not take.
 */
export async function matches(vhost, pattern, target, signal) {
  const found = { names: [], more: false };
  if (target !== "exchanges") {
    const type = TYPES[target];
    await gather(found, path`queues/${vhost}`, pattern, signal, (row) => !type || row.type === type, "queue");
  }
  if (target === "exchanges" || target === "all") {
    await gather(found, path`exchanges/${vhost}`, pattern, signal, (row) => row.name !== "", "exchange");
  }
  return found;
}

async function gather(found, address, pattern, signal, fits, kind) {
  for (let page = 1; ; page += 1) {
    const asked = {
      page, page_size: PAGE_SIZE, use_regex: "true", columns: "name,type", disable_stats: "true",
      // Lists are searched without regard to case; policies are not.
      name: `(?-i:${pattern})`,
    };
    const answer = await get(address, asked, signal);
    found.names.push(...answer.items.filter(fits).map((row) => [kind, row.name]));
    if (page >= answer.page_count) return;
    if (page * PAGE_SIZE >= NAMES_MAX) {
      found.more = true;
      return;
    }
  }
}

/** "3 queues and 1 exchange". */
export function matchedText({ names, more }) {
  const queues = names.filter(([kind]) => kind === "queue").length;
  const exchanges = names.length - queues;
  const parts = [];
  if (queues || !exchanges) parts.push(counted(queues, "queue"));
  if (exchanges) parts.push(counted(exchanges, "exchange"));
  return parts.join(" and ") + (more ? " or more" : "");
}

/** A part of a form: `read()` gives `{vhost, pattern, target}` as they are written. `look()` asks again. */
export function matchPreview(read) {
  const said = el("p", { class: "preview-said", role: "status" });
  const list = el("ul", { class: "preview-names" });
  const element = el("section", { class: "preview", "aria-label": "What it would match" }, said, list);
  let timer = 0;
  let running = null;

  async function ask() {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const { vhost, pattern, target } = read();
    if (pattern === "") {
      show("Write a pattern to see what it matches now.", []);
      return;
    }
    try {
      const found = await matches(vhost, pattern, target, mine.signal);
      if (running === mine) show(`It matches ${matchedText(found)} now.`, found.names);
    } catch (error) {
      if (running === mine && error.name !== "AbortError") {
        show(`What it matches cannot be shown: ${error.message}`, []);
      }
    }
  }

  function show(text, names) {
    said.textContent = text;
    const rest = names.length - SHOWN_MAX;
    list.replaceChildren(
      ...names.slice(0, SHOWN_MAX).map(([, each]) => el("li", { class: "argument" }, el("bdi", {}, name(each)))),
      ...(rest > 0 ? [el("li", { class: "quiet" }, `and ${count(rest)} more`)] : []),
    );
  }

  function look() {
    clearTimeout(timer);
    timer = setTimeout(ask, AFTER_MS);
  }

  return { element, look };
}
