// All consumers: which client takes messages from which queue.

import { path } from "/js/api.js";
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
      },
      { title: "Virtual host", sort: "queue.vhost", kind: "secondary", text: (row) => name(row.queue.vhost) },
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
    title: "Channel", sort: "channel_details.name", kind: "long", text: (row) => row.channel_details.name,
    node: (row) => link(to("channels", row.channel_details.name), row.channel_details.name),
  };
  return [
    {
      title: "Tag", sort: "consumer_tag", kind: channel ? "long secondary" : "long",
      text: (row) => name(row.consumer_tag),
    },
    ...(channel ? [from] : []),
    { title: "User", sort: "channel_details.user", kind: "secondary", text: (row) => name(row.channel_details.user) },
    {
      title: "Acknowledges", sort: "ack_required", kind: "secondary",
      text: (row) => (row.ack_required ? "yes" : "no"),
    },
    {
      title: "Prefetch", sort: "prefetch_count", kind: "number secondary",
      text: (row) => (row.prefetch_count ? count(row.prefetch_count) : "no limit"),
    },
    {
      title: "State", kind: "secondary", text: stateOf,
      node: (row) => badge(stateOf(row), row.active ? "good" : "warn"),
    },
  ];
}

/** A consumer of an exclusive or single active one waits while another is served. */
function stateOf(row) {
  if (!row.active) return "waiting";
  return row.activity_status === "single_active" ? "single active" : "active";
}
