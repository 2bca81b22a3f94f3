// Definitions: everything that exists but messages, downloaded as one file; and a file, taken in. For administrators.

import { ask, part } from "/js/api.js";
import { notice, openDialog } from "/js/dialog.js";
import { compare, readDefinitions } from "/js/definitions.js";
import { button, el, newId } from "/js/elements.js";
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
        { title: "Download", note: "One file of JSON, without messages. Passwords are in it as hashes." },
        button("Download the definitions", () => act(() => download(scope.value)), { kind: "primary" }),
      ),
      panel(
        { title: "Upload", note: "Nothing is deleted. What the file changes is shown before it is done." },
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
  const found = compare(readDefinitions(text), await ask("GET", addressOf(scope)), vhost);
  askFirst(file.name, vhost, found, text, addressOf(scope));
}

function askFirst(fileName, vhost, found, text, address) {
  const changes = found.some((each) => each.added.length + each.changed.length > 0);
  const problem = el("p", { class: "problem", role: "alert" });
  const cancel = button(changes ? "Cancel" : "Close", () => dialog.close(), { autofocus: true });
  const go = button("Upload", perform, { kind: "primary" });
  const where = vhost === null ? "this broker" : `virtual host ${name(vhost)}`;

  async function perform() {
    go.disabled = true;
    problem.textContent = "";
    try {
      await ask("POST", address, { sent: text });
      dialog.close();
      notice("The definitions were taken in.", "good");
    } catch (error) {
      problem.textContent = error.message;
      go.disabled = false;
    }
  }

  const dialog = openDialog(
    `Upload ${name(fileName)}?`,
    [
      changes
        ? el("p", {}, el("bdi", {}, `This changes ${where}. What is not in the file stays as it is.`))
        : empty("Nothing would change", "All that the file says is there already."),
      changes && el("ul", { class: "changes" }, found.flatMap(changesOf)),
      problem,
      el("div", { class: "dialog-foot" }, cancel, changes && go),
    ].filter(Boolean),
  );
}

function changesOf({ noun, plural, added, changed, kept, same }) {
  const lines = [
    ["added", "good", added],
    ["changed", "warn", changed],
    [`${kept.length === 1 ? "stays as it is" : "stay as they are"}, other than in the file`, "", kept],
  ];
  const rows = lines.filter(([, , names]) => names.length > 0).map(([what, kind, names]) => el(
    "li",
    {},
    el("span", { class: `badge ${kind}`.trim() }, `${counted(names.length, noun, plural)} ${what}`),
    " ",
    el("bdi", {}, names.slice(0, NAMES_MAX).map(name).join(", ")),
    names.length > NAMES_MAX ? ` and ${count(names.length - NAMES_MAX)} more` : "",
  ));
  return same > 0 ? [...rows, el("li", { class: "quiet" }, `${counted(same, noun, plural)} there already`)] : rows;
}
