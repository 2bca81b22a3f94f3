// All channels.

import { path } from "/js/api.js";
import { clientCell, clientHint, clientName } from "/js/clients.js";
import { el } from "/js/elements.js";
import { count, name, rate } from "/js/format.js";
import { listPage } from "/js/list.js";
import { empty } from "/js/panels.js";
import { to } from "/js/router.js";

export function channels(context) {
  return listPage(context, {
    title: "Channels",
    nouns: ["channel", "channels"],
    searched: "by client or IP",
    sort: "user_provided_name",
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
  "name,number,user,vhost,confirm,transactional,prefetch_count,global_prefetch_count,user_provided_name",
  "messages_unacknowledged,messages_unconfirmed,consumer_count,message_stats",
].join(",");

/** Also of the channels of one connection. */
export function channelColumns() {
  return [
    {
      title: "Client", sort: "user_provided_name", kind: "name", text: (row) => row.name + clientName(row),
      node: (row) => clientCell(to("channels", row.name), row, row.name), hint: (row) => clientHint(row, row.name),
    },
    { title: "User", sort: "user", kind: "secondary", width: 84, text: (row) => name(row.user) },
    {
      title: "Virtual host", sort: "vhost", kind: "secondary of-vhost", width: 104, text: (row) => name(row.vhost),
      hint: (row) => name(row.vhost),
    },
    {
      title: "Published", sort: "message_stats.publish_details.rate", kind: "number secondary", width: 90,
      text: (row) => rate(row.message_stats?.publish_details?.rate ?? 0), hint: mode,
    },
    {
      title: "Delivered", sort: "message_stats.deliver_get_details.rate", kind: "number secondary", width: 90,
      text: (row) => rate(row.message_stats?.deliver_get_details?.rate ?? 0),
    },
    { title: "Prefetch", sort: "prefetch_count", kind: "number secondary", width: 84, text: prefetch },
    {
      title: "Unacked", sort: "messages_unacknowledged", kind: "number", width: 86,
      text: (row) => count(row.messages_unacknowledged),
    },
    {
      title: "Unconfirmed", sort: "messages_unconfirmed", kind: "number secondary", width: 112,
      text: (row) => count(row.messages_unconfirmed),
    },
    {
      title: "Consumers", sort: "consumer_count", kind: "number secondary", width: 114,
      text: (row) => count(row.consumer_count),
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
