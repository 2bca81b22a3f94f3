// Definitions: everything that exists but messages, downloaded as one file; and a file, taken in. For administrators.

import { ask, part } from "/js/api.js";
import { notice, openDialog } from "/js/dialog.js";
import { button, el, newId } from "/js/elements.js";
import { tick } from "/js/form.js";
import { count, counted, name } from "/js/format.js";
import { empty, page, panel } from "/js/panels.js";
import { vhostOptions } from "/js/vhost_options.js";

const NAMES_MAX = 5;
const EVERYTHING = "";

export function definitions() {
  const scope = el("select", { id: newId("scope") }, el("option", { value: EVERYTHING }, "Everything"));
  const file = el("input", { type: "file", id: newId("file"), accept: "application/json,.json" });
  const problem = el("p", { class: "problem", role: "alert" });
  const element = page(
    { title: "Definitions" },
    panel(
      { title: "Scope", note: "Everything includes users and permissions; a virtual host is what is in it." },
      el(
        "div",
        { class: "field narrow" },
        el("label", { class: "field-label", for: scope.id }, "Definitions of"),
        scope,
      ),
    ),
    el(
      "div",
      { class: "columns" },
      panel(
        {
          title: "Download",
          note:
            "One file of JSON, without messages. Passwords are in it as hashes; " +
            "RabbitMQ cannot check those that were set here.",
        },
        button("Download the definitions", () => act(() => download(scope.value)), { kind: "primary" }),
      ),
      panel(
        { title: "Upload", note: "What the file changes is shown before it is done." },
        el(
          "div",
          { class: "form" },
          el("div", { class: "field" }, el("label", { class: "field-label", for: file.id }, "File"), file),
          problem,
          el("div", {}, button("Compare and upload", () => act(() => upload(file.files[0], scope)))),
        ),
      ),
    ),
  );

  async function act(action) {
    problem.textContent = "";
    try {
      await action();
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  let asked = false;

  function load() {
    return asked ? null : vhostOptions();
  }

  function show(hosts) {
    if (asked) return;
    asked = true;
    scope.append(...hosts.map(([value, text]) => el("option", { value }, `Virtual host ${text}`)));
  }

  return { title: "Definitions", element, load, show };
}

function addressOf(scope) {
  return scope === EVERYTHING ? "definitions" : `definitions/${part(scope)}`;
}

async function download(scope) {
  const text = await ask("GET", addressOf(scope), { asText: true });
  const where = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const day = new Date().toISOString().slice(0, 10);
  const of = scope === EVERYTHING ? "" : `-${scope.replace(/[^\w.-]+/g, "_")}`;
  el("a", { href: where, download: `amqpd-definitions${of}-${day}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(where), 1000);
}

async function upload(file, { value: scope }) {
  if (file === undefined) throw new Error("Choose a file first.");
  const text = await file.text();
  const vhost = scope === EVERYTHING ? null : scope;
  askFirst(file.name, vhost, text, await planned(vhost, text, false));
}

function planned(vhost, text, prune) {
  return ask("POST", "amqpd/definitions/plan", { sent: text, query: { vhost, prune } });
}

function askFirst(fileName, vhost, text, first) {
  const problem = el("p", { class: "problem", role: "alert" });
  const plan = el("div", { class: "plan", "aria-live": "polite" });
  const { control: prune, element: pruning } = tick("prune", "Delete what the file does not name", {
    hint: "In the sections that the file has; queues go with their messages.",
  });
  prune.addEventListener("change", compareAgain);
  const cancel = button("Cancel", () => dialog.close(), { autofocus: true });
  const go = button("Upload", perform, { kind: "primary" });
  const where = vhost === null ? "this broker" : `virtual host ${name(vhost)}`;

  function show(found) {
    const removes = found.changes.some((each) => each.action === "remove");
    go.hidden = found.changes.length === 0;
    cancel.textContent = go.hidden ? "Close" : "Cancel";
    go.className = removes ? "button danger" : "button primary";
    go.textContent = removes ? "Upload and delete" : "Upload";
    plan.replaceChildren(...planOf(found, where));
  }

  async function compareAgain() {
    await guarded(async () => show(await planned(vhost, text, prune.checked)));
  }

  async function perform() {
    await guarded(async () => {
      const query = { vhost, prune: prune.checked, skip_conflicts: true };
      const { summary } = await ask("POST", "amqpd/definitions/apply", { sent: text, query });
      dialog.close();
      notice(`${summary[0].toUpperCase()}${summary.slice(1)}.`, "good");
    });
  }

  async function guarded(action) {
    go.disabled = prune.disabled = true;
    problem.textContent = "";
    try {
      await action();
    } catch (error) {
      problem.textContent = error.message;
    }
    go.disabled = prune.disabled = false;
  }

  const dialog = openDialog(`Upload ${name(fileName)}?`, [
    plan,
    pruning,
    problem,
    el("div", { class: "dialog-foot" }, cancel, go),
  ]);
  show(first);
}

function planOf(found, where) {
  const nothing = found.changes.length === 0;
  const same = Object.values(found.unchanged).reduce((sum, each) => sum + each, 0);
  const { conflicts, impossible } = found;
  const otherwise = {
    count: conflicts.count - impossible.count,
    says: conflicts.says.filter((each) => !impossible.says.includes(each)),
  };
  const others = [
    [impossible.count === 1 ? "cannot be made and stays out" : "cannot be made and stay out", impossible],
    [otherwise.count === 1 ? "differs and stays as it is" : "differ and stay as they are", otherwise],
    ["left out", found.left_out],
    ["not deleted", found.kept],
  ];
  const rows = [
    ...found.changes.map(changeOf),
    ...others.filter(([, { count }]) => count > 0).map(([what, { count: total, says }]) =>
      row("", `${count(total)} ${what}`, says, total)),
    same > 0 ? el("li", { class: "quiet" }, `${counted(same, "thing")} as in the file already`) : null,
  ].filter(Boolean);
  return [
    nothing
      ? empty("Nothing would change", "All that the file says is there already.")
      : el("p", {}, el("bdi", {}, `This changes ${where}.`)),
    rows.length > 0 && el("ul", { class: "changes" }, rows),
  ].filter(Boolean);
}

const ACTIONS = { create: ["added", "good"], change: ["changed", "warn"], remove: ["deleted", "bad"] };

function changeOf({ action, words, count: total, things }) {
  const [what, kind] = ACTIONS[action];
  return row(kind, `${words} ${what}`, things.map((each) => each.thing), total);
}

function row(kind, title, says, total) {
  const shown = says.slice(0, NAMES_MAX);
  return el(
    "li",
    {},
    el("span", { class: `badge ${kind}`.trim() }, title),
    " ",
    el("bdi", {}, shown.map(name).join(", ")),
    total > shown.length ? ` and ${count(total - shown.length)} more` : "",
  );
}
