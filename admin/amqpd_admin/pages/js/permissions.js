// Permissions of a user in a virtual host: as a table of either, set, cleared. For administrators.

import { ask, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { name } from "/js/format.js";
import { empty } from "/js/panels.js";
import { to } from "/js/router.js";
import { link } from "/js/table.js";
import { vhostOptions } from "/js/vhost_options.js";

export const PERMISSIONS_NOTE =
  "Regular expressions for names: configure is to declare and delete, write to publish, read to consume.";

/** `of`: "user" or "vhost", which the page is of; the table names the other one. */
export function permissionColumns(of, refresh) {
  const other =
    of === "user"
      ? { title: "Virtual host", sort: "vhost", text: (row) => row.vhost, node: (row) => vhostLink(row.vhost) }
      : {
          title: "User", sort: "user", text: (row) => row.user,
          node: (row) => link(to("users", row.user), name(row.user)),
        };
  return [
    { ...other, kind: "name" },
    { title: "Configure", ...patternCell("configure") },
    { title: "Write", ...patternCell("write") },
    { title: "Read", ...patternCell("read") },
    {
      title: "",
      kind: "end",
      text: (row) => JSON.stringify(row),
      node: (row) => el(
        "span",
        { class: "tools" },
        button("Change", () => permissionDialog(row, refresh), { kind: "small" }),
        button("Clear", () => clear(row, refresh), { kind: "small" }),
      ),
    },
  ];
}

/** A pattern in a cell; the empty one matches nothing. */
export function patternCell(field) {
  return {
    text: (row) => row[field],
    node: (row) =>
      row[field] === ""
        ? el("span", { class: "quiet" }, "nothing")
        : el("code", {}, el("bdi", {}, name(row[field]))),
  };
}

export function vhostLink(given) {
  return link(to("vhosts", given), name(given));
}

export function noPermissions(of, set) {
  return empty(
    "No permissions",
    of === "user" ? "The user may enter no virtual host yet." : "No user may enter this virtual host.",
    button("Set permissions", set, { kind: "primary" }),
  );
}

/** `row`: what is there already, or `{user}` or `{vhost}` alone: the other one is asked for. */
export async function permissionDialog(row, refresh) {
  const hint = "A regular expression for names. Empty: nothing.";
  const owner = row.user === undefined ? [text("user", "User", { required: true })] : [];
  const vhosts = row.vhost === undefined ? await vhostOptions() : [[row.vhost, name(row.vhost)]];
  formDialog({
    title: row.user === undefined ? `Permissions in ${name(row.vhost)}` : `Permissions of ${name(row.user)}`,
    fields: [
      ...owner,
      select("vhost", "Virtual host", vhosts),
      text("configure", "Configure", { value: row.configure ?? ".*", hint }),
      text("write", "Write", { value: row.write ?? ".*", hint }),
      text("read", "Read", { value: row.read ?? ".*", hint }),
    ],
    action: "Set permissions",
    async submit({ user = row.user, vhost, ...body }) {
      await ask("PUT", path`permissions/${vhost}/${user}`, { body });
      notice("The permissions are set.", "good");
      refresh();
    },
  });
}

async function clear(row, refresh) {
  const done = await confirm({
    title: "Clear permissions?",
    lines: [
      `User ${name(row.user)} will not be able to enter virtual host ${name(row.vhost)} any more.`,
      "Its topic permissions there stay, and count again with new permissions.",
    ],
    action: "Clear",
    act: () => ask("DELETE", path`permissions/${row.vhost}/${row.user}`),
  });
  if (done) refresh();
}
