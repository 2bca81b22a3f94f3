// Limits that are set, of all virtual hosts and users. A virtual host or a user that is not listed has none.

import { button, el } from "/js/elements.js";
import { name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { clearLimits, limitsDialog } from "/js/limits.js";
import { listPage } from "/js/list.js";
import { argumentList, empty, tabs } from "/js/panels.js";
import { to } from "/js/router.js";
import { link } from "/js/table.js";
import { vhostOptions } from "/js/vhost_options.js";

export function limits(context) {
  const { query, who, refresh } = context;
  const administers = who.tags.includes("administrator");
  const owner = administers && query.get("of") === "users" ? "user" : "vhost";
  const noun = owner === "user" ? "user" : "virtual host";
  const set = async () => limitsDialog(owner, null, {}, refresh, owner === "vhost" ? await vhostOptions() : null);
  const users = [["#/limits?of=users", "Users", owner === "user"]];
  return listPage(context, {
    title: "Limits",
    nouns: [`${noun} with limits`, `${noun}s with limits`],
    searched: "by name",
    source: () => `${owner}-limits`,
    sort: owner,
    before: [tabs([["#/limits", "Virtual hosts", owner === "vhost"], ...(administers ? users : [])])],
    columns: [
      {
        title: owner === "user" ? "User" : "Virtual host", sort: owner, kind: "name", text: (row) => row[owner],
        node: (row) => link(to(`${owner}s`, row[owner]), name(row[owner])),
      },
      { title: "Limits", text: (row) => JSON.stringify(row.value), node: (row) => argumentList(row.value) },
      ...(administers ? [{
        title: "", kind: "end", text: (row) => JSON.stringify(row),
        node: (row) => tools(owner, row, refresh),
      }] : []),
    ],
    key: (row) => row[owner],
    actions: administers ? [button("Set limits", set, { kind: "primary", icon: icon("plus") })] : [],
    empty: () => empty(
      `No ${noun} has limits`,
      owner === "user"
        ? "A limit says how many connections and channels a user may have, and how fast it may publish."
        : "A limit says how many connections and queues a virtual host may have, and how fast it takes messages.",
      administers ? button("Set limits", set, { kind: "primary" }) : null,
    ),
  });
}

function tools(owner, row, refresh) {
  return el(
    "span",
    { class: "tools" },
    button("Change", () => limitsDialog(owner, row[owner], row.value, refresh), { kind: "small" }),
    button("Clear", () => clearLimits(owner, row[owner], row.value, refresh), { kind: "small" }),
  );
}
