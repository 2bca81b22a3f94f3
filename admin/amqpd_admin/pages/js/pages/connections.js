// All connections of clients.

import { brokerAhead, path } from "/js/api.js";
import { clientCell, clientHint, clientName } from "/js/clients.js";
import { el } from "/js/elements.js";
import { age, byteRate, count, moment, name, rate } from "/js/format.js";
import { listPage } from "/js/list.js";
import { badge, empty } from "/js/panels.js";
import { to } from "/js/router.js";

export function connections(context) {
  return listPage(context, {
    title: "Connections",
    nouns: ["connection", "connections"],
    searched: "by client or IP",
    sort: "user_provided_name",
    source: (vhost) => (vhost === null ? "connections" : path`vhosts/${vhost}/connections`),
    fields: FIELDS,
    columns: [
      {
        title: "Client", sort: "user_provided_name", kind: "name", text: (row) => row.name + clientName(row),
        node: (row) => clientCell(to("connections", row.name), row, row.name),
        hint: (row) => clientHint(row, row.name),
      },
      { title: "User", sort: "user", kind: "secondary", width: 84, text: (row) => name(row.user), hint: userHint },
      {
        title: "Virtual host", sort: "vhost", kind: "secondary of-vhost", width: 104, text: (row) => name(row.vhost),
        hint: (row) => name(row.vhost),
      },
      {
        title: "State", sort: "state", width: 88, text: (row) => row.state,
        node: (row) => badge(row.state, stateKind(row.state)),
      },
      {
        title: "Channels", sort: "channels", kind: "number secondary", width: 84, text: (row) => count(row.channels),
      },
      {
        title: "Published", sort: "message_stats.publish_details.rate", kind: "number secondary", width: 90,
        text: (row) => rate(row.message_stats?.publish_details?.rate),
      },
      speed("Received", "recv_oct"),
      speed("Sent", "send_oct"),
      {
        title: "Open for", sort: "connected_at", kind: "number secondary", width: 90,
        text: (row) => age(Date.now() + brokerAhead() - row.connected_at),
        hint: (row) => moment(row.connected_at),
      },
    ],
    key: (row) => row.name,
    vhosts: true,
    empty: () => empty(
      "No connections",
      "No client is connected. Where they can is on the overview.",
      el("a", { class: "button", href: "#/" }, "See the listeners"),
    ),
  });
}

const FIELDS = [
  "name,user,vhost,state,channels,connected_at,ssl,recv_oct_details,send_oct_details,message_stats",
  "user_provided_name,client_properties.product",
].join(",");

export function stateKind(state) {
  if (state === "running") return "good";
  return state === "blocked" ? "bad" : "warn";
}

function userHint(row) {
  return `${name(row.user)}, ${row.ssl ? "over TLS" : "without TLS"}`;
}

function speed(title, field) {
  return {
    title, sort: `${field}_details.rate`, kind: "number secondary", width: 100,
    text: (row) => byteRate(row[`${field}_details`]?.rate),
  };
}
