// All queues, and a new one.

import { ask, path } from "/js/api.js";
import { mark, statesOf } from "/js/attention.js";
import { notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, table, text, tick } from "/js/form.js";
import { age, count, name, NOTHING, rate } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPage } from "/js/list.js";
import { manyQueues } from "/js/many_queues.js";
import { badge, empty } from "/js/panels.js";
import { go, to } from "/js/router.js";
import { link } from "/js/table.js";
import { vhostOptions } from "/js/vhost_options.js";

const FIELDS = [
  "name,vhost,type,state,attention,durable,auto_delete,exclusive,policy,consumers",
  "messages,messages_ready,messages_unacknowledged,oldest_message_age_s",
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
  const many = manyQueues(context);
  const list = listPage(context, {
    title: "Queues",
    nouns: ["queue", "queues"],
    source: (vhost) => (vhost === null ? "queues" : path`queues/${vhost}`),
    fields: FIELDS,
    filters: [["backlog", "Has backlog"], ["unused", "No consumers"]],
    columns: [
      {
        title: "Name", sort: "name", kind: "name",
        text: (row) => JSON.stringify([row.vhost, row.name, kinds(row), statesOf(row)]),
        node: named, hint: (row) => [name(row.name), kinds(row)].filter(Boolean).join(": "),
      },
      {
        title: "Virtual host", sort: "vhost", kind: "secondary of-vhost", width: 104, text: (row) => name(row.vhost),
        hint: (row) => name(row.vhost),
      },
      {
        title: "State", kind: "secondary", sort: "state", width: 128, text: (row) => JSON.stringify(statesOf(row)),
        node: (row) => el("span", { class: "badges" }, statesOf(row).map((each) => badge(...each))),
        hint: (row) => statesOf(row).map(([said]) => said).join(", "),
      },
      number("Ready", "messages_ready", 86),
      number("Unacked", "messages_unacknowledged", 86),
      { ...number("Total", "messages", 86), kind: "number secondary" },
      {
        title: "Oldest", sort: "oldest_message_age_s", kind: "number secondary", width: 86,
        text: (row) => (Number.isFinite(row.oldest_message_age_s) ? age(row.oldest_message_age_s * 1000) : NOTHING),
      },
      { ...number("Consumers", "consumers", 98), kind: "number secondary" },
      speed("In", "publish"),
      speed("Out", "deliver_get"),
    ],
    key: (row) => JSON.stringify([row.vhost, row.name]),
    vhosts: true,
    acts: many.element,
    actions: [open],
    empty: () => empty(
      "No queues yet",
      "A queue keeps messages until a consumer has taken them. Clients declare their own; you can declare one here.",
      button("Declare a queue", declare, { kind: "primary" }),
    ),
  });
  return {
    ...list,
    show(found) {
      list.show(found);
      many.show(found);
    },
  };
}

function number(title, field, width) {
  return { title, sort: field, kind: "number", width, text: (row) => count(row[field]) };
}

function speed(title, field) {
  return {
    title, sort: `message_stats.${field}_details.rate`, kind: "number secondary", width: 74,
    text: (row) => rate(row.message_stats?.[`${field}_details`]?.rate ?? 0),
  };
}

function named(row) {
  return el(
    "span",
    {},
    mark(statesOf(row)),
    link(to("queues", row.vhost, row.name), name(row.name)),
    el("span", { class: "quiet small" }, ` ${kinds(row)}`),
  );
}

/** Of a queue what most queues are not. */
function kinds(row) {
  return kindsOf(row).filter((each) => each !== "classic").join(", ");
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
