// The form to log in.

import { ask } from "/js/api.js";
import { el, newId } from "/js/elements.js";
import { mark } from "/js/icons.js";

/** `said`: why it is shown. `done(session)` is called once. */
export function loginPage(said, done) {
  const name = el(
    "input",
    {
      id: newId("name"), name: "username", autocomplete: "username", required: true, autocapitalize: "none",
      spellcheck: "false",
    },
  );
  const password = el(
    "input",
    { id: newId("password"), name: "password", type: "password", autocomplete: "current-password", required: true },
  );
  const problem = el("p", { class: "problem", role: "alert" }, said);
  const send = el("button", { type: "submit", class: "button primary wide" }, "Log in");

  async function submit(event) {
    event.preventDefault();
    send.disabled = true;
    problem.textContent = "";
    try {
      done(await ask("POST", "amqpd/session", { body: { name: name.value, password: password.value }, stays: true }));
    } catch (error) {
      problem.textContent = reason(error);
      send.disabled = false;
      password.select();
    }
  }

  const form = el(
    "form",
    { class: "login-card", on: { submit } },
    el("div", { class: "login-head" }, mark(), el("h1", {}, "amqpd")),
    el("p", { class: "quiet" }, "Log in with a user of this broker."),
    el("label", { class: "field", for: name.id }, el("span", { class: "field-label" }, "User"), name),
    el("label", { class: "field", for: password.id }, el("span", { class: "field-label" }, "Password"), password),
    problem,
    send,
  );
  return { element: el("main", { class: "login" }, form), focus: () => name.focus() };
}

function reason(error) {
  if (error.status === 401 && error.kind === "not_authorized") return "That user and password do not log in here.";
  if (error.status !== 401) return error.message;
  return "This user has no tag that lets it use these pages. An administrator can give it one.";
}
