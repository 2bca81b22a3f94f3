// Dialogs: a question before something is destroyed, a form; and short notices of what was done.

import { button, el, newId } from "/js/elements.js";
import { hold } from "/js/live.js";

const NOTICE_MS = 5000;

export function closeDialogs() {
  for (const each of document.querySelectorAll("dialog[open]")) each.close();
}

/** A dialog that is gone when it is closed; Escape closes it. */
export function openDialog(title, content, { kind = "" } = {}) {
  const id = newId("dialog");
  const dialog = el(
    "dialog",
    { class: `dialog ${kind}`.trim(), "aria-labelledby": id },
    el("h2", { id }, title),
    content,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks before `act()` is done: `lines` say what will be destroyed, `action` is on the button. Whether it was done.
 */
export function confirm({ title, lines, action, act }) {
  return new Promise((resolve) => {
    const problem = el("p", { class: "problem", role: "alert" });
    const cancel = button("Cancel", () => dialog.close(), { autofocus: true });
    const go = button(action, perform, { kind: "danger" });
    let done = false;

    async function perform() {
      go.disabled = true;
      problem.textContent = "";
      try {
        await hold(act);
        done = true;
        dialog.close();
      } catch (error) {
        problem.textContent = error.message;
        go.disabled = false;
      }
    }

    const said = lines.filter(Boolean).map((line) => el("p", {}, el("bdi", {}, line)));
    const dialog = openDialog(title, [...said, problem, el("div", { class: "dialog-foot" }, cancel, go)]);
    dialog.addEventListener("close", () => resolve(done));
  });
}

/** `notice("Queue made")` for a few seconds, or until it is closed. */
export function notice(text, kind = "") {
  const place = document.getElementById("notices");
  const note = el("div", { class: `notice ${kind}`.trim() }, el("bdi", {}, text));
  place.append(note);
  setTimeout(() => note.remove(), NOTICE_MS);
}
