// One user: its tags, its password, what it may do in each virtual host. For administrators.

import { ask, get, path } from "/js/api.js";
import { accessPanel } from "/js/access.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, text } from "/js/form.js";
import { counted, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { limitsPanel } from "/js/limits.js";
import { tagBadges, tagFields, TAGS, tagsOf } from "/js/pages/users.js";
import { facts, page, panel } from "/js/panels.js";
import { noPermissions, permissionColumns, permissionDialog, PERMISSIONS_NOTE } from "/js/permissions.js";
import { go } from "/js/router.js";
import { Table } from "/js/table.js";
import { topicPermissionsPanel } from "/js/topic_permissions.js";

export function user({ name: userName, refresh, who }) {
  const shown = name(userName);
  const about = facts();
  let tags = [];
  const set = () => permissionDialog({ user: userName }, refresh);
  const permissions = new Table({
    columns: permissionColumns("user", refresh),
    key: (row) => row.vhost,
    label: "Permissions",
    empty: () => noPermissions("user", set),
  });
  const topics = topicPermissionsPanel(userName, refresh);
  const access = accessPanel(userName);
  const limits = limitsPanel("user", userName, { may: true, refresh });
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
    el("div", { class: "columns" }, panel({ title: "Facts" }, about.element), limits.element),
    panel(
      {
        title: "Permissions",
        actions: [button("Set permissions", set, { kind: "small", icon: icon("plus") })],
        note: PERMISSIONS_NOTE,
      },
      permissions.element,
    ),
    topics.element,
    access.element,
  );

  async function load(signal) {
    const found = await get(path`users/${userName}`, { columns: "name,tags" }, signal);
    const given = await get(path`users/${userName}/permissions`, {}, signal);
    const routing = await get(path`users/${userName}/topic-permissions`, {}, signal);
    const set = await get(path`user-limits/${userName}`, {}, signal);
    const vhosts = (await get("vhosts", { columns: "name" }, signal)).map((each) => each.name);
    return { found, given, routing, set, vhosts };
  }

  function show({ found, given, routing, set, vhosts }) {
    tags = found.tags;
    about.show([
      ["Tags", tagBadges(tags)],
      ["Virtual hosts", given.length ? counted(given.length, "virtual host") : "none: it can do nothing"],
    ]);
    permissions.show(given);
    topics.show(routing);
    access.show(vhosts);
    limits.show(set);
  }

  return { title: shown, element, load, show, missing: { href: "#/users", text: "All users" } };
}

function tagDialog(userName, tags, refresh) {
  const others = tags.filter((each) => !TAGS.some(([tag]) => tag === each));
  formDialog({
    title: `Tags of ${name(userName)}`,
    fields: tagFields(tags),
    action: "Set tags",
    async submit(values) {
      // What is put is all of the user: without its hash it would have no password any more.
      const { password_hash, hashing_algorithm } = await get(path`users/${userName}`);
      const body = { tags: tagsOf(values, others), password_hash, hashing_algorithm };
      await ask("PUT", path`users/${userName}`, { body });
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
      `The user will be destroyed with its permissions in ${counted(given.length, "virtual host")}. ` +
        "It cannot log in any more.",
      open.length > 0 && `${counted(open.length, "connection")} that it has open will be closed.`,
    ],
    action: "Delete the user",
    act: () => ask("DELETE", path`users/${userName}`),
  });
  if (done) {
    notice(`User ${name(userName)} was deleted.`, "good");
    go("#/users");
  }
}
