// All consumers: which client takes messages from which queue.

import { path } from "/js/api.js";
import { mark } from "/js/attention.js";
import { clientCell, clientHint, clientName } from "/js/clients.js";
import { el } from "/js/elements.js";
import { count, name } from "/js/format.js";
import { listPage } from "/js/list.js";
import { badge, empty } from "/js/panels.js";
import { to } from "/js/router.js";
import { link } from "/js/table.js";

export function consumers(context) {
  return listPage(context, {
    title: "Consumers",
    nouns: ["consumer", "consumers"],
    searched: "by queue or tag",
    source: (vhost) => (vhost === null ? "consumers" : path`consumers/${vhost}`),
    sort: "queue.name",
    columns: [
      {
        title: "Queue", sort: "queue.name", kind: "name",
        text: (row) => JSON.stringify([row.queue.vhost, row.queue.name]),
        node: (row) => link(to("queues", row.queue.vhost, row.queue.name), name(row.queue.name)),
        hint: (row) => name(row.queue.name),
      },
      { title: "Virtual host", sort: "queue.vhost", kind: "secondary of-vhost", width: 104, text: vhostName },
      ...consumerColumns(),
    ],
    key: (row) => JSON.stringify([row.channel_details.name, row.consumer_tag]),
    vhosts: true,
    empty: () => empty(
      "No consumers",
      "No client takes messages from a queue now. What waits in the queues is in their list.",
      el("a", { class: "button", href: "#/queues?sort=messages&desc=1" }, "See the fullest queues"),
    ),
  });
}

/** Also of the consumers of one queue, or of one channel. */
export function consumerColumns({ channel = true } = {}) {
  const from = {
    title: "Client", sort: "user_provided_name", kind: "name",
    text: (row) => row.channel_details.name + clientName(row),
    node: (row) => clientCell(to("channels", row.channel_details.name), row, row.channel_details.name),
    hint: (row) => clientHint(row, row.channel_details.name),
  };
  return [
    ...(channel ? [from] : []),
    {
      title: "Tag", sort: "consumer_tag", ...(channel ? { kind: "secondary", width: 150 } : { kind: "name" }),
      text: (row) => name(row.consumer_tag), hint: (row) => name(row.consumer_tag),
    },
    {
      title: "User", sort: "channel_details.user", kind: "secondary", width: 96,
      text: (row) => name(row.channel_details.user),
    },
    {
      title: "Unacked", sort: "messages_unacknowledged", kind: "number", width: 86,
      text: (row) => JSON.stringify([stateOf(row), unacked(row)]),
      node: (row) => el("span", {}, mark([[stateOf(row), stateKind(row)]]), unacked(row)),
      hint: (row) => (row.ack_required ? "" : "It takes messages without acknowledging them."),
    },
    {
      title: "Prefetch", sort: "prefetch_count", kind: "number secondary", width: 84,
      text: (row) => (row.prefetch_count ? count(row.prefetch_count) : "no limit"),
    },
    {
      title: "State", kind: "secondary", width: 136, text: stateOf,
      node: (row) => badge(stateOf(row), stateKind(row)),
    },
  ];
}

function vhostName(row) {
  return name(row.queue.vhost);
}

function unacked(row) {
  return row.ack_required ? count(row.messages_unacknowledged) : "none kept";
}

function stateKind(row) {
  return stateOf(row).endsWith("active") ? "good" : "warn";
}

/** One waits while a single active or exclusive other one is served; who has as much as it may gets nothing. */
function stateOf(row) {
  if (!row.active) return "waiting";
  if (row.prefetch_count && row.messages_unacknowledged >= row.prefetch_count) return "at prefetch";
  return row.activity_status === "single_active" ? "single active" : "active";
}
