// Virtual hosts: each with queues, exchanges and permissions of its own.

import { ask, path } from "/js/api.js";
import { notice } from "/js/dialog.js";
import { button } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { count, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPage } from "/js/list.js";
import { removeVhost } from "/js/pages/vhost.js";
import { empty } from "/js/panels.js";
import { vhostLink } from "/js/permissions.js";
import { go, to } from "/js/router.js";

export function vhosts(context) {
  const administers = context.who.tags.includes("administrator");
  const add = () => addDialog();
  const remove = async (given) => (await removeVhost(given)) && context.refresh();
  return listPage(context, {
    title: "Virtual hosts",
    nouns: ["virtual host", "virtual hosts"],
    source: () => "vhosts",
    fields: "name,description,default_queue_type,messages_ready,messages_unacknowledged,tracing",
    columns: [
      { title: "Name", sort: "name", kind: "name", text: (row) => row.name, node: (row) => vhostLink(row.name) },
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
          node: (row) => button("Delete", () => remove(row.name), { kind: "small" }),
        }] : []
      ),
    ],
    key: (row) => row.name,
    actions: administers ? [button("Add a virtual host", add, { kind: "primary", icon: icon("plus") })] : [],
    empty: () => empty("No virtual hosts that you may see", "Ask an administrator for permissions on one."),
  });
}

function addDialog() {
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
      go(to("vhosts", given));
    },
  });
}
