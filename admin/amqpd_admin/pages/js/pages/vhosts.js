// Virtual hosts: each with queues, exchanges and permissions of its own.

import { ask, get, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { count, counted, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPage } from "/js/list.js";
import { empty } from "/js/panels.js";

export function vhosts(context) {
  const administers = context.who.tags.includes("administrator");
  const add = () => addDialog(context.refresh);
  return listPage(context, {
    title: "Virtual hosts",
    nouns: ["virtual host", "virtual hosts"],
    source: () => "vhosts",
    fields: "name,description,default_queue_type,messages_ready,messages_unacknowledged,tracing",
    columns: [
      { title: "Name", sort: "name", kind: "name", text: (row) => row.name, node: named },
      { title: "Description", sort: "description", kind: "secondary", text: (row) => name(row.description) },
      { title: "Queues are", kind: "secondary", text: (row) => row.default_queue_type },
      { title: "Tracing", kind: "secondary", text: (row) => (row.tracing ? "on" : "off") },
      { title: "Ready", sort: "messages_ready", kind: "number", text: (row) => count(row.messages_ready) },
      {
        title: "Unacked", sort: "messages_unacknowledged", kind: "number",
        text: (row) => count(row.messages_unacknowledged),
      },
      ...(
        administers ? [{
          title: "", kind: "end", text: (row) => row.name,
          node: (row) => button("Delete", () => remove(row.name, context.refresh), { kind: "small" }),
        }] : []
      ),
    ],
    key: (row) => row.name,
    actions: administers ? [button("Add a virtual host", add, { kind: "primary", icon: icon("plus") })] : [],
    empty: () => empty("No virtual hosts that you may see", "Ask an administrator for permissions on one."),
  });
}

function named(row) {
  const filtered = new URLSearchParams({ vhost: row.name });
  return el("a", { href: `#/queues?${filtered}` }, el("bdi", {}, name(row.name)));
}

function addDialog(refresh) {
  formDialog({
    title: "Add a virtual host",
    note: "You get all permissions in it; other users need them from you.",
    fields: [
      text("name", "Name", { required: true }),
      text("description", "Description"),
      select("default_queue_type", "Queues that say no type are", [
        ["classic", "classic"],
        ["quorum", "quorum"],
      ]),
    ],
    action: "Add",
    async submit({ name: given, ...body }) {
      await ask("PUT", path`vhosts/${given}`, { body });
      notice(`Virtual host ${name(given)} is there.`, "good");
      refresh();
    },
  });
}

async function remove(given, refresh) {
  const now = await get(path`vhosts/${given}`, { columns: "messages" });
  const queues = await get(path`queues/${given}`, { page: 1, page_size: 1, columns: "name" });
  const open = await get(path`vhosts/${given}/connections`, { page: 1, page_size: 1, columns: "name" });
  const done = await confirm({
    title: `Delete virtual host ${name(given)}?`,
    lines: [
      `${counted(queues.total_count, "queue")} with ${counted(now.messages, "message")} will be destroyed, ` +
        "with all exchanges, bindings, policies and permissions in it. This cannot be undone.",
      open.total_count > 0 && `${counted(open.total_count, "connection")} will be closed.`,
    ],
    action: "Delete the virtual host",
    act: () => ask("DELETE", path`vhosts/${given}`),
  });
  if (done) {
    notice(`Virtual host ${name(given)} was deleted.`, "good");
    refresh();
  }
}
