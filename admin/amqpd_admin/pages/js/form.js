// Forms in dialogs: fields with labels and hints, a table of arguments, and what the broker says against it.

import { button, el, newId } from "/js/elements.js";
import { openDialog } from "/js/dialog.js";
import { icon } from "/js/icons.js";
import { suggest } from "/js/suggest.js";

/**
 * `fields`: what the functions below make; `below` stands under them. `submit(values, signal)` sends; what it throws
 * is shown and the form stays. `signal` is of the dialog: who closes it stops what `submit` does. `stops`: so says
 * its button while that goes on.
 */
export function formDialog({ title, note = null, fields, below = [], action, stops = false, submit }) {
  const problem = el("p", { class: "problem", role: "alert" });
  const send = el("button", { type: "submit", class: "button primary" }, action);
  const cancel = button("Cancel", () => dialog.close());
  const closed = new AbortController();

  async function go(event) {
    event.preventDefault();
    problem.textContent = "";
    send.disabled = true;
    if (stops) cancel.textContent = "Stop";
    try {
      const values = Object.fromEntries(fields.map((field) => [field.name, field.read()]));
      await submit(values, closed.signal);
      dialog.close();
    } catch (error) {
      problem.textContent = error.message;
      send.disabled = false;
      cancel.textContent = "Cancel";
    }
  }

  const form = el(
    "form",
    { on: { submit: go } },
    note && el("p", { class: "quiet" }, note),
    fields.map((field) => field.element),
    below,
    problem,
    el("div", { class: "dialog-foot" }, cancel, send),
  );
  const dialog = openDialog(title, form);
  dialog.addEventListener("close", () => closed.abort());
  form.querySelector("input, select, textarea")?.focus();
  return dialog;
}

function labelled(label, control, hint) {
  control.id ||= newId("field");
  const note = hint ? el("span", { class: "hint", id: newId("hint") }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return el("div", { class: "field" }, el("label", { class: "field-label", for: control.id }, label), control, note);
}

/** `suggestions(written)`: names to choose from, as `suggest.js` has them. */
export function text(
  name, label, { value = "", hint = null, required = false, type = "text", suggestions = null, ...more } = {},
) {
  const control = el(
    "input",
    { type, name, required, autocomplete: "off", spellcheck: "false", set: { value }, ...more },
  );
  const element = labelled(label, control, hint);
  if (suggestions) element.append(suggest(control, suggestions));
  return { name, control, element, read: () => control.value };
}

export function longText(name, label, { value = "", hint = null, rows = 6 } = {}) {
  const control = el("textarea", { name, rows, spellcheck: "false", set: { value } });
  return { name, control, element: labelled(label, control, hint), read: () => control.value };
}

/** One that is not `required` may be empty: NaN. */
export function number(name, label, { value = "", hint = null, min = null, max = null, required = true } = {}) {
  const control = el("input", { type: "number", name, min, max, step: 1, required, set: { value } });
  return { name, control, element: labelled(label, control, hint), read: () => control.valueAsNumber };
}

/** `options`: `[value, text]`. */
export function select(name, label, options, { value = options[0]?.[0], hint = null } = {}) {
  const control = el("select", { name }, options.map(([each, said]) => el("option", { value: each }, said)));
  control.value = value;
  return { name, control, element: labelled(label, control, hint), read: () => control.value };
}

export function tick(name, label, { value = false, hint = null } = {}) {
  const control = el("input", { type: "checkbox", name, id: newId("field"), set: { checked: value } });
  const element = el(
    "div",
    { class: "field tick" },
    control,
    el("label", { for: control.id }, label),
    hint && el("span", { class: "hint" }, hint),
  );
  return { name, control, element, read: () => control.checked };
}

const KINDS = [
  ["text", "Text"],
  ["number", "Number"],
  ["flag", "True or false"],
  ["json", "JSON"],
];

/** A table of arguments: `known` are names to choose from, `given` those that are there. */
export function table(name, label, { known = [], given = {}, hint = null } = {}) {
  const rows = el("div", { class: "argument-rows" });
  const names = el("datalist", { id: newId("names") }, known.map((each) => el("option", { value: each })));

  function add(key = "", value = "") {
    const kind = el(
      "select",
      { "aria-label": "Kind" },
      KINDS.map(([each, said]) => el("option", { value: each }, said)),
    );
    kind.value = kindOf(value, key === "");
    const row = el(
      "div",
      { class: "argument-row" },
      el(
        "input",
        {
          class: "argument-name", "aria-label": "Name", placeholder: "Name", list: names.id, spellcheck: "false",
          set: { value: key },
        },
      ),
      kind,
      el(
        "input",
        {
          class: "argument-value", "aria-label": "Value", placeholder: "Value", spellcheck: "false",
          set: { value: kind.value === "text" ? String(value) : JSON.stringify(value) },
        },
      ),
      button("", () => row.remove(), { kind: "plain", icon: icon("close"), "aria-label": "Remove" }),
    );
    // Most arguments that the broker knows are numbers: what is written says which kind it is, until one is chosen.
    let chosen = key !== "";
    kind.addEventListener("change", () => (chosen = true));
    row.querySelector(".argument-value").addEventListener("input", (event) => {
      if (!chosen) kind.value = guess(event.target.value);
    });
    rows.append(row);
    return row;
  }

  for (const [key, value] of Object.entries(given)) add(key, value);
  const more = button("Add", () => add().querySelector("input").focus(), { icon: icon("plus"), kind: "small" });
  const element = el(
    "fieldset",
    { class: "field" },
    el("legend", { class: "field-label" }, label),
    names,
    rows,
    more,
    hint && el("span", { class: "hint" }, hint),
  );
  return { name, element, read: () => Object.fromEntries([...rows.children].map(argument).filter(Boolean)) };
}

function guess(written) {
  if (/^-?\d+$/.test(written)) return "number";
  return written === "true" || written === "false" ? "flag" : "text";
}

function kindOf(value, fresh) {
  if (typeof value === "string" || fresh) return "text";
  if (typeof value === "boolean") return "flag";
  return typeof value === "number" ? "number" : "json";
}

/** Raises Error, with the name of what is wrong. */
function argument(row) {
  const [key, kind, written] = [...row.querySelectorAll("input, select")].map((each) => each.value);
  if (key === "" && written === "") return null;
  if (key === "") throw new Error("An argument has no name.");
  if (kind === "text") return [key, written];
  let value;
  try {
    value = JSON.parse(written);
  } catch {
    throw new Error(
      `${key}: this is not ${kind === "json" ? "JSON" : kind === "number" ? "a number" : "true or false"}.`
    );
  }
  if (kind === "number" && typeof value !== "number") throw new Error(`${key}: this is not a number.`);
  if (kind === "flag" && typeof value !== "boolean") throw new Error(`${key}: this is neither true nor false.`);
  return [key, value];
}
