// All queues that the list's filter leaves, purged or deleted: first what would be done, then a question with the
// number, then what was done, and why not. The queues that were counted are named to the broker then: no other one is
// meant.

import { commandRows } from "/js/api.js";
import { notice, openDialog } from "/js/dialog.js";
import { button, el, write } from "/js/elements.js";
import { count, counted, name } from "/js/format.js";

const NAMES_SHOWN = 10;
const REFUSALS_SHOWN = 100;
// Of the names in one request: in UTF-8 that is less than its body may have.
const NAMES_CHARACTERS = 60_000;
const ACTS = {
  purge: {
    title: "Purge these…", verb: "Purge", done: "purged",
    note: "Their ready messages are deleted, and the queues stay.",
  },
  delete: {
    title: "Delete these…", verb: "Delete", done: "deleted",
    note: "The queues, their messages and their bindings are deleted; who consumes them is told so.",
  },
};
const CONDITIONS = { backlog: "with a backlog", unused: "without consumers" };

/** `{element, show(found)}`: two buttons, for whom the broker lets do it. `found` is what the list shows. */
export function manyQueues({ query, who, refresh }) {
  if (!who.tags.includes("administrator")) return { element: null, show() {} };
  const buttons = Object.keys(ACTS).map((act) => button(
    ACTS[act].title, () => manyDialog(act, filterOf(query), refresh), { kind: "filter", disabled: true },
  ));
  return {
    element: el("div", { class: "filters", role: "group", "aria-label": "All queues of this list" }, buttons),
    show(found) {
      const filtered = filterOf(query).words.length > 0;
      for (const each of buttons) {
        each.disabled = !filtered || found.filtered_count === 0;
        each.title = filtered ? "" : "Search or filter first: all queues of the broker are not meant at once";
      }
    },
  };
}

/** As the address of the list has it: for the broker, and in words. */
function filterOf(query) {
  const [text, vhost, only] = ["name", "vhost", "only"].map((field) => query.get(field) || null);
  const expression = text !== null && query.get("regex") !== null;
  const conditions = only === null ? [] : only.split(",");
  return {
    body: {
      // A virtual host alone says nothing of the names: all of its queues are meant.
      vhost, only: conditions, containing: expression ? null : text ?? (vhost === null ? null : ""),
      matching: expression ? `(?i)${text}` : null,
    },
    words: [
      text !== null && (expression ? `whose name matches ${name(text)}` : `with "${name(text)}" in their name`),
      vhost !== null && `in virtual host ${name(vhost)}`,
      ...conditions.map((each) => CONDITIONS[each] ?? each),
    ].filter(Boolean),
  };
}

async function manyDialog(act, filter, done) {
  const { verb, note } = ACTS[act];
  const closed = new AbortController();
  const said = el("p", { role: "status" }, "Looking which ones they are…");
  const list = el("ul", { class: "many-names numbers" });
  const progress = el("progress", { max: 1, value: 0, "aria-label": "Progress", hidden: true });
  const problem = el("p", { class: "problem", role: "alert" });
  const cancel = button("Cancel", () => dialog.close(), { autofocus: true });
  const go = button(`${verb} them`, perform, { kind: "danger", disabled: true });
  const dialog = openDialog(`${verb} queues ${filter.words.join(", ")}`, [
    el("p", { class: "quiet" }, note), said, list, progress, problem, el("div", { class: "dialog-foot" }, cancel, go),
  ]);
  dialog.addEventListener("close", () => closed.abort());
  let found = [];

  function ask(body, told) {
    return commandRows(`queues ${act}`, { body: { ...filter.body, ...body }, signal: closed.signal }, told);
  }

  try {
    await ask({ yes: false }, (rows) => {
      found.push(...rows);
      write(said, `${counted(found.length, "queue")} so far…`);
    });
  } catch (error) {
    if (error.name === "AbortError") return;
    write(said, "Nothing was done.");
    problem.textContent = error.message;
    return;
  }
  if (found.length === 0) {
    write(said, "No queue is meant by now: nothing to do.");
    cancel.textContent = "Close";
    return;
  }
  write(said, `This is a dry run: nothing is done yet. It would ${act} ${withMessages(found)}:`);
  list.replaceChildren(...linesOf(found, NAMES_SHOWN, (row) => counted(row.messages ?? NaN, "message")));
  go.textContent = `${verb} ${counted(found.length, "queue")}`;
  go.disabled = false;

  async function perform() {
    const rows = [];
    go.hidden = true;
    progress.hidden = false;
    progress.max = found.length;
    cancel.textContent = "Stop";
    let why = "";
    try {
      for (const names of inParts(found)) {
        await ask({ names, containing: null, matching: null, vhost: null, yes: true }, (some) => {
          rows.push(...some);
          progress.value = rows.length;
          write(said, `${count(rows.length)} of ${counted(found.length, "queue")}…`);
        });
      }
    } catch (error) {
      why = error.name === "AbortError" ? "Stopped, and perhaps one more was done." : error.message;
    }
    done();
    const sentence = doneSaid(act, rows, found.length);
    if (!dialog.open) {
      notice(`${why} ${sentence}`.trim());
      return;
    }
    const refused = rows.filter((row) => row.refused !== null);
    problem.textContent = why;
    write(said, sentence);
    list.replaceChildren(...linesOf(refused, REFUSALS_SHOWN, (row) => name(row.refused)));
    progress.hidden = true;
    cancel.textContent = "Close";
  }
}

/** "3 queues with 1,200 ready messages". */
function withMessages(rows) {
  const known = rows.reduce((sum, row) => sum + (row.messages ?? 0), 0);
  const unknown = rows.filter((row) => row.messages === null).length;
  const more = unknown ? `, and what is in the ${count(unknown)} whose leader does not answer` : "";
  return `${counted(rows.length, "queue")} with ${counted(known, "ready message")}${more}`;
}

function doneSaid(act, rows, all) {
  const { verb, done } = ACTS[act];
  const refused = rows.filter((row) => row.refused !== null).length;
  const went = withMessages(rows.filter((row) => row.refused === null));
  const left = all - rows.length;
  return [
    `${verb}d ${went}.`,
    refused > 0 && `${counted(refused, "queue was", "queues were")} not ${done}, and this is why:`,
    left > 0 && `${counted(left, "queue")} ${left === 1 ? "was" : "were"} left as they are.`,
  ].filter(Boolean).join(" ");
}

function linesOf(rows, most, says) {
  const lines = rows.slice(0, most).map((row) => el(
    "li",
    {},
    el("bdi", { class: "many-name" }, name(row.name)),
    row.vhost !== "/" && el("bdi", { class: "quiet" }, ` in ${name(row.vhost)}`),
    el("bdi", { class: "many-says" }, says(row)),
  ));
  const rest = rows.length - lines.length;
  return rest > 0 ? [...lines, el("li", { class: "quiet" }, `and ${count(rest)} more`)] : lines;
}

/** Names of the queues, as many as a request takes. */
function* inParts(rows) {
  let names = [];
  let characters = 0;
  for (const row of rows) {
    names.push([row.vhost, row.name]);
    characters += JSON.stringify(names.at(-1)).length;
    if (characters >= NAMES_CHARACTERS) {
      yield names;
      [names, characters] = [[], 0];
    }
  }
  if (names.length) yield names;
}
