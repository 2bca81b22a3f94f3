// The beginning: who is logged in, which page is shown, and what becomes of it when the address changes.

import { alarmStrip } from "/js/alarms.js";
import { ask, whenLoggedOut } from "/js/api.js";
import { Live } from "/js/live.js";
import { loginPage } from "/js/login.js";
import { failure, notFound, page as pageOf } from "/js/panels.js";
import { here, match, setQuery } from "/js/router.js";
import { shell } from "/js/shell.js";
import { closeDialogs } from "/js/dialog.js";
import { overview } from "/js/pages/overview.js";
import { queues } from "/js/pages/queues.js";
import { queue } from "/js/pages/queue.js";
import { exchanges } from "/js/pages/exchanges.js";
import { exchange } from "/js/pages/exchange.js";
import { connections } from "/js/pages/connections.js";
import { connection } from "/js/pages/connection.js";
import { channels } from "/js/pages/channels.js";
import { channel } from "/js/pages/channel.js";
import { consumers } from "/js/pages/consumers.js";
import { users } from "/js/pages/users.js";
import { user } from "/js/pages/user.js";
import { vhosts } from "/js/pages/vhosts.js";
import { vhost } from "/js/pages/vhost.js";
import { policies } from "/js/pages/policies.js";
import { limits } from "/js/pages/limits.js";
import { definitions } from "/js/pages/definitions.js";
import { cluster } from "/js/pages/cluster.js";
import { log } from "/js/pages/log.js";
import { audit } from "/js/pages/audit.js";

const ROUTES = [
  ["", overview],
  ["queues", queues],
  ["queues/:vhost/:name", queue],
  ["exchanges", exchanges],
  ["exchanges/:vhost/:name", exchange],
  ["connections", connections],
  ["connections/:name", connection],
  ["channels", channels],
  ["channels/:name", channel],
  ["consumers", consumers],
  ["users", users],
  ["users/:name", user],
  ["vhosts", vhosts],
  ["vhosts/:name", vhost],
  ["policies", policies],
  ["limits", limits],
  ["definitions", definitions],
  ["cluster", cluster],
  ["log", log],
  ["audit", audit],
];

const app = document.getElementById("app");
let who = null;
let frame = null;
let live = null;
/** of the alarms, above all pages */
let watch = null;

function leave() {
  live?.stop();
  live = null;
  closeDialogs();
}

/** The page of the address as it is. */
function enter() {
  if (who === null) return;
  leave();
  const { parts, query } = here();
  const found = match(ROUTES, parts);
  frame.mark(parts[0]);
  if (found === null) {
    frame.show(pageOf({ title: "Not found" }, notFound("There is no such page.", "#/", "Go to the overview")));
    document.title = "Not found · amqpd";
    return;
  }
  const context = { ...found.names, query, who, setQuery, refresh: () => live?.now() };
  const made = found.page(context);
  document.title = `${made.title} · amqpd`;
  frame.show(made.element);
  live = new Live(
    made.load,
    (data) => {
      frame.trouble(null);
      made.element.removeAttribute("aria-busy");
      made.show(data);
    },
    (error) => failed(error, made),
  );
  live.now();
}

function failed(error, made) {
  if (!("status" in error)) {
    // A mistake of these pages: say it here, and let it be seen where mistakes of scripts are.
    reportError(error);
    frame.trouble(`This page failed: ${error.message}`);
  } else if (error.status === 404 && made.missing) {
    live.stop();
    frame.trouble(null);
    made.element.replaceWith(pageOf(
      { title: made.title },
      notFound(error.message, made.missing.href, made.missing.text),
    ));
  } else if (error.status === 401 || error.kind === "bad_name") {
    live.stop();
    made.element.replaceWith(pageOf({ title: made.title }, failure(error.message)));
  } else {
    frame.trouble(error.status === 0 ? "The broker does not answer. Trying again every two seconds." : error.message);
  }
}

function logIn(said = "") {
  who = null;
  leave();
  watch?.stop();
  watch = null;
  frame = null;
  document.title = "Log in · amqpd";
  const form = loginPage(said, (session) => begin(session));
  app.replaceChildren(form.element);
  form.focus();
}

async function logOut() {
  try {
    await ask("DELETE", "amqpd/session", { stays: true });
  } finally {
    logIn();
  }
}

function begin(session) {
  who = session;
  const alarms = alarmStrip(who, () => (watch?.now(), live?.now()));
  frame = shell(who, { logOut, above: alarms.element });
  app.replaceChildren(frame.element);
  enter();
  // Where the broker does not answer, the page says so: what was seen last stays.
  watch = new Live(alarms.load, alarms.show, (error) => "status" in error || reportError(error));
  watch.now();
}

async function start() {
  whenLoggedOut(() => who !== null && logIn("The session has ended. Log in again to go on here."));
  window.addEventListener("hashchange", () => {
    enter();
    // What was pressed is on a page that is gone: the keyboard goes on in the new one.
    frame?.focus();
  });
  try {
    const session = await ask("GET", "amqpd/session");
    if (session.name === null) logIn();
    else begin(session);
  } catch (error) {
    logIn(error.message);
  }
}

// "/" goes to the search field of the page, wherever one is; not while something is written.
document.addEventListener("keydown", (event) => {
  const writes = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || writes || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = app.querySelector("input[type=search]");
  if (search === null || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  search.focus();
  search.select();
});

start();
