// What a policy would apply to, among the others: asked of the broker while the policy is written.

import { get, path } from "/js/api.js";
import { el } from "/js/elements.js";
import { count, counted, name } from "/js/format.js";

const AFTER_MS = 300;

/** "3 queues and 1 exchange". */
function matchedText({ queues, exchanges }) {
  const parts = [];
  if (queues || !exchanges) parts.push(counted(queues, "queue"));
  if (exchanges) parts.push(counted(exchanges, "exchange"));
  return parts.join(" and ");
}

/** What a policy that is there matches, as text. */
export async function matchesOf(row, operator) {
  const { vhost, name: named, pattern, priority, "apply-to": target } = row;
  const asked = { pattern, priority, name: named, "apply-to": target, operator: operator ? "true" : null };
  return matchedText(await get(path`amqpd/policies/preview/${vhost}`, asked));
}

/** "It matches 3 queues now, and applies to 1: orders-dlx wins for 2." */
function said(found) {
  const matches = `It matches ${matchedText(found)} now`;
  if (found.applies === found.queues + found.exchanges) return `${matches}.`;
  const winners = found.winners.map((each) => `${name(each.policy)} wins for ${count(each.count)}`).join(", ");
  return `${matches}, and applies to ${count(found.applies)}: ${winners}. Give it a higher priority to go first.`;
}

/** A part of a form: `read()` gives what the broker is asked, with the `vhost`. `look()` asks again. */
export function matchPreview(read) {
  const text = el("p", { class: "preview-said", role: "status" });
  const list = el("ul", { class: "preview-names" });
  const element = el("section", { class: "preview", "aria-label": "What it would match" }, text, list);
  let timer = 0;
  let running = null;

  async function ask() {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const { vhost, ...asked } = read();
    if (asked.pattern === "") {
      show("Write a pattern to see what it matches now.", []);
      return;
    }
    try {
      const found = await get(path`amqpd/policies/preview/${vhost}`, asked, mine.signal);
      if (running === mine) show(said(found), found.names, found.applies - found.names.length);
    } catch (error) {
      if (running === mine && error.name !== "AbortError") {
        show(`What it matches cannot be shown: ${error.message}`, []);
      }
    }
  }

  function show(line, names, rest = 0) {
    text.textContent = line;
    list.replaceChildren(
      ...names.map((each) => el("li", { class: "argument" }, el("bdi", {}, name(each)))),
      ...(rest > 0 ? [el("li", { class: "quiet" }, `and ${count(rest)} more`)] : []),
    );
  }

  function look() {
    clearTimeout(timer);
    timer = setTimeout(ask, AFTER_MS);
  }

  return { element, look };
}
