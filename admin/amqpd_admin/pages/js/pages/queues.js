// All queues, and a new one.

import { ask, path } from "/js/api.js";
import { notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, table, text, tick } from "/js/form.js";
import { count, name, rate } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPage } from "/js/list.js";
import { badge, empty } from "/js/panels.js";
import { go, to } from "/js/router.js";
import { link } from "/js/table.js";
import { vhostOptions } from "/js/vhost_options.js";

const FIELDS = [
  "name,vhost,type,state,durable,auto_delete,exclusive,policy,consumers",
  "messages,messages_ready,messages_unacknowledged",
  "message_stats.publish_details.rate,message_stats.deliver_get_details.rate",
].join(",");

// What the broker knows, for the list under a field; others are taken as they are.
export const QUEUE_ARGUMENTS = [
  "x-dead-letter-exchange",
  "x-dead-letter-routing-key",
  "x-expires",
  "x-max-length",
  "x-max-length-bytes",
  "x-max-priority",
  "x-message-ttl",
  "x-overflow",
  "x-single-active-consumer",
  "x-delivery-limit",
];

export function queues(context) {
  const declare = () => declareDialog(context);
  const open = button("Declare a queue", declare, { kind: "primary", icon: icon("plus") });
  return listPage(context, {
    title: "Queues",
    nouns: ["queue", "queues"],
    source: (vhost) => (vhost === null ? "queues" : path`queues/${vhost}`),
    fields: FIELDS,
    columns: [
      {
        title: "Name", sort: "name", kind: "name", text: (row) => JSON.stringify([row.vhost, row.name]),
        node: (row) => link(to("queues", row.vhost, row.name), name(row.name)),
      },
      { title: "Virtual host", sort: "vhost", kind: "secondary", text: (row) => name(row.vhost) },
      {
        title: "Kind", kind: "secondary", text: kinds,
        node: (row) => el("span", { class: "badges" }, kindsOf(row).map((each) => badge(each))),
      },
      {
        title: "State", kind: "secondary", sort: "state", text: (row) => row.state,
        node: (row) => badge(row.state, row.state === "running" ? "good" : "warn"),
      },
      { title: "Ready", sort: "messages_ready", kind: "number", text: (row) => count(row.messages_ready) },
      {
        title: "Unacked", sort: "messages_unacknowledged", kind: "number",
        text: (row) => count(row.messages_unacknowledged),
      },
      { title: "Consumers", sort: "consumers", kind: "number secondary", text: (row) => count(row.consumers) },
      {
        title: "In", kind: "number secondary", sort: "message_stats.publish_details.rate",
        text: (row) => rate(row.message_stats?.publish_details?.rate ?? 0),
      },
      {
        title: "Out", kind: "number secondary", sort: "message_stats.deliver_get_details.rate",
        text: (row) => rate(row.message_stats?.deliver_get_details?.rate ?? 0),
      },
    ],
    key: (row) => JSON.stringify([row.vhost, row.name]),
    vhosts: true,
    actions: [open],
    empty: () => empty(
      "No queues yet",
      "A queue keeps messages until a consumer has taken them. Clients declare their own; you can declare one here.",
      button("Declare a queue", declare, { kind: "primary" }),
    ),
  });
}

function kinds(row) {
  return kindsOf(row).join(" ");
}

export function kindsOf(row) {
  return [
    row.type,
    row.durable ? null : "transient",
    row.auto_delete ? "auto-delete" : null,
    row.exclusive ? "exclusive" : null,
    row.policy ? `policy ${name(row.policy)}` : null,
  ].filter(Boolean);
}

async function declareDialog({ query }) {
  const vhosts = await vhostOptions();
  formDialog({
    title: "Declare a queue",
    fields: [
      text("name", "Name", { required: true }),
      select("vhost", "Virtual host", vhosts, { value: query.get("vhost") || vhosts[0]?.[0] }),
      select("type", "Type", [
        ["", "as the virtual host has it"],
        ["classic", "classic"],
        ["quorum", "quorum: kept by several nodes of a cluster"],
      ]),
      tick("durable", "Durable", { value: true, hint: "It is there again after a restart." }),
      tick("auto_delete", "Auto-delete", { hint: "It goes with its last consumer." }),
      table("arguments", "Arguments", { known: QUEUE_ARGUMENTS }),
    ],
    action: "Declare",
    async submit({ name: given, vhost, type, durable, auto_delete, arguments: more }) {
      const kind = type ? { "x-queue-type": type } : {};
      await ask(
        "PUT",
        path`queues/${vhost}/${given}`,
        { body: { durable, auto_delete, arguments: { ...more, ...kind } } },
      );
      notice(`Queue ${name(given)} is there.`, "good");
      go(to("queues", vhost, given));
    },
  });
}
