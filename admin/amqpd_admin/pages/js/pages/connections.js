// All connections of clients.

import { path } from "/js/api.js";
import { el } from "/js/elements.js";
import { bytes, count, duration, name } from "/js/format.js";
import { listPage } from "/js/list.js";
import { badge, empty } from "/js/panels.js";
import { to } from "/js/router.js";
import { link } from "/js/table.js";

export function connections(context) {
  return listPage(context, {
    title: "Connections",
    nouns: ["connection", "connections"],
    source: (vhost) => (vhost === null ? "connections" : path`vhosts/${vhost}/connections`),
    fields: FIELDS,
    columns: [
      { title: "Name", sort: "name", kind: "name", text: (row) => row.name + title(row), node: named },
      { title: "User", sort: "user", text: (row) => name(row.user) },
      { title: "Virtual host", sort: "vhost", kind: "secondary", text: (row) => name(row.vhost) },
      {
        title: "State", sort: "state", text: (row) => row.state,
        node: (row) => badge(row.state, stateKind(row.state)),
      },
      { title: "TLS", kind: "secondary", text: (row) => (row.ssl ? "yes" : "no") },
      { title: "Channels", sort: "channels", kind: "number secondary", text: (row) => count(row.channels) },
      { title: "Received", sort: "recv_oct", kind: "number secondary", text: (row) => bytes(row.recv_oct) },
      { title: "Sent", sort: "send_oct", kind: "number secondary", text: (row) => bytes(row.send_oct) },
      {
        title: "Open for", sort: "connected_at", kind: "number secondary",
        text: (row) => duration(Date.now() - row.connected_at),
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
  "name,user,vhost,state,channels,connected_at,ssl,recv_oct,send_oct",
  "client_properties.connection_name,client_properties.product",
].join(",");

export function stateKind(state) {
  if (state === "running") return "good";
  return state === "blocked" ? "bad" : "warn";
}

/** What the client says that it is. */
export function title(row) {
  const { connection_name: own, product } = row.client_properties ?? {};
  return [own, product].find((each) => typeof each === "string" && each !== "") ?? "";
}

function named(row) {
  const said = title(row);
  return el(
    "span",
    { class: "stack" },
    link(to("connections", row.name), row.name),
    said && el("span", { class: "quiet small" }, el("bdi", {}, name(said))),
  );
}
