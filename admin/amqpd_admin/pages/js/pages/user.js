// One user: its tags, its password, what it may do in each virtual host. For administrators.

import { ask, get, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { counted, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { tagBadges, tagFields, TAGS, tagsOf } from "/js/pages/users.js";
import { empty, facts, page, panel } from "/js/panels.js";
import { go } from "/js/router.js";
import { Table } from "/js/table.js";
import { vhostOptions } from "/js/vhost_options.js";

export function user({ name: userName, refresh, who }) {
  const shown = name(userName);
  const about = facts();
  let tags = [];
  const set = () => permissionDialog(userName, null, refresh);
  const permissions = permissionTable(userName, refresh, set);
  const element = page(
    {
      title: shown,
      up: { href: "#/users", text: "Users" },
      actions: [
        button("Change tags", () => tagDialog(userName, tags, refresh)),
        button("Change password", () => passwordDialog(userName, tags)),
        ...(userName === who.name ? [] : [button("Delete", () => remove(userName), { kind: "danger" })]),
      ],
    },
    panel({ title: "Facts" }, about.element),
    panel(
      {
        title: "Permissions",
        actions: [button("Set permissions", set, { kind: "small", icon: icon("plus") })],
        note: "Regular expressions for names: configure is to declare and delete, write to publish, read to consume.",
      },
      permissions.element,
    ),
  );

  async function load(signal) {
    const found = await get(path`users/${userName}`, { columns: "name,tags" }, signal);
    const given = await get(path`users/${userName}/permissions`, {}, signal);
    return { found, given };
  }

  function show({ found, given }) {
    tags = found.tags;
    about.show([
      ["Tags", tagBadges(tags)],
      ["Virtual hosts", given.length ? counted(given.length, "virtual host") : "none: it can do nothing"],
    ]);
    permissions.show(given);
  }

  return { title: shown, element, load, show, missing: { href: "#/users", text: "All users" } };
}

function permissionTable(userName, refresh, set) {
  const nothing = () => el("span", { class: "quiet" }, "nothing");
  const shown = (text) => (text === "" ? nothing() : el("code", {}, el("bdi", {}, text)));
  const pattern = (field) => ({ text: (row) => row[field], node: (row) => shown(name(row[field])) });
  return new Table({
    columns: [
      { title: "Virtual host", kind: "name", text: (row) => name(row.vhost) },
      { title: "Configure", ...pattern("configure") },
      { title: "Write", ...pattern("write") },
      { title: "Read", ...pattern("read") },
      {
        title: "",
        kind: "end",
        text: (row) => JSON.stringify(row),
        node: (row) => el(
          "span",
          { class: "tools" },
          button("Change", () => permissionDialog(userName, row, refresh), { kind: "small" }),
          button("Clear", () => clear(row, refresh), { kind: "small" }),
        ),
      },
    ],
    key: (row) => row.vhost,
    label: "Permissions",
    empty: () => empty(
      "No permissions",
      "The user may enter no virtual host yet.",
      button("Set permissions", set, { kind: "primary" }),
    ),
  });
}

async function permissionDialog(userName, row, refresh) {
  const vhosts = row === null ? await vhostOptions() : [[row.vhost, name(row.vhost)]];
  const hint = "A regular expression for names. Empty: nothing.";
  formDialog({
    title: `Permissions of ${name(userName)}`,
    fields: [
      select("vhost", "Virtual host", vhosts),
      text("configure", "Configure", { value: row?.configure ?? ".*", hint }),
      text("write", "Write", { value: row?.write ?? ".*", hint }),
      text("read", "Read", { value: row?.read ?? ".*", hint }),
    ],
    action: "Set permissions",
    async submit({ vhost, ...body }) {
      await ask("PUT", path`permissions/${vhost}/${userName}`, { body });
      notice("The permissions are set.", "good");
      refresh();
    },
  });
}

async function clear(row, refresh) {
  const done = await confirm({
    title: "Clear permissions?",
    lines: [`User ${name(row.user)} will not be able to enter virtual host ${name(row.vhost)} any more.`],
    action: "Clear",
    act: () => ask("DELETE", path`permissions/${row.vhost}/${row.user}`),
  });
  if (done) refresh();
}

function tagDialog(userName, tags, refresh) {
  const others = tags.filter((each) => !TAGS.some(([tag]) => tag === each));
  formDialog({
    title: `Tags of ${name(userName)}`,
    fields: tagFields(tags),
    action: "Set tags",
    async submit(values) {
      await ask("PUT", path`users/${userName}`, { body: { tags: tagsOf(values, others) } });
      notice("The tags are set.", "good");
      refresh();
    },
  });
}

function passwordDialog(userName, tags) {
  formDialog({
    title: `Password of ${name(userName)}`,
    note: "Connections that are open stay open. On these pages the user has to log in again.",
    fields: [text("password", "New password", { type: "password", required: true, autocomplete: "new-password" })],
    action: "Set password",
    async submit({ password }) {
      await ask("PUT", path`users/${userName}`, { body: { tags, password } });
      notice("The password is set.", "good");
    },
  });
}

async function remove(userName) {
  const given = await get(path`users/${userName}/permissions`);
  const open = await get(path`connections/username/${userName}`, { columns: "name" });
  const done = await confirm({
    title: `Delete ${name(userName)}?`,
    lines: [
      `The user will be destroyed with its permissions on ${counted(given.length, "virtual host")}. ` +
        "It cannot log in any more.",
      open.length > 0 && `It has ${counted(open.length, "connection")} open now.`,
    ],
    action: "Delete the user",
    act: () => ask("DELETE", path`users/${userName}`),
  });
  if (done) {
    notice(`User ${name(userName)} was deleted.`, "good");
    go("#/users");
  }
}
