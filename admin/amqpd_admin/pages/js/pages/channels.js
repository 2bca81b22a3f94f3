// All channels.

import { path } from "/js/api.js";
import { el } from "/js/elements.js";
import { count, name } from "/js/format.js";
import { listPage } from "/js/list.js";
import { empty } from "/js/panels.js";
import { to } from "/js/router.js";
import { link } from "/js/table.js";

export function channels(context) {
  return listPage(context, {
    title: "Channels",
    nouns: ["channel", "channels"],
    source: (vhost) => (vhost === null ? "channels" : path`vhosts/${vhost}/channels`),
    fields: FIELDS,
    columns: channelColumns(),
    key: (row) => row.name,
    vhosts: true,
    empty: () => empty(
      "No channels",
      "Clients open channels on their connections, to publish and to consume.",
      el("a", { class: "button", href: "#/connections" }, "See the connections"),
    ),
  });
}

const FIELDS = [
  "name,number,user,vhost,confirm,transactional,prefetch_count,global_prefetch_count",
  "messages_unacknowledged,consumer_count,connection_details.name",
].join(",");

/** Also of the channels of one connection. */
export function channelColumns() {
  return [
    {
      title: "Name", sort: "name", kind: "name", text: (row) => row.name,
      node: (row) => link(to("channels", row.name), row.name),
    },
    { title: "Number", sort: "number", kind: "number secondary", text: (row) => row.number },
    { title: "User", sort: "user", text: (row) => name(row.user) },
    { title: "Virtual host", sort: "vhost", kind: "secondary", text: (row) => name(row.vhost) },
    { title: "Publishes with", kind: "secondary", text: mode },
    { title: "Prefetch", sort: "prefetch_count", kind: "number secondary", text: prefetch },
    {
      title: "Unacked", sort: "messages_unacknowledged", kind: "number",
      text: (row) => count(row.messages_unacknowledged),
    },
    {
      title: "Consumers", sort: "consumer_count", kind: "number secondary", text: (row) => count(row.consumer_count),
    },
  ];
}

export function mode(row) {
  if (row.transactional) return "transactions";
  return row.confirm ? "confirms" : "neither";
}

export function prefetch(row) {
  if (row.global_prefetch_count) return `${count(row.global_prefetch_count)} in all`;
  return row.prefetch_count ? count(row.prefetch_count) : "no limit";
}
