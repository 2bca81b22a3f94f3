// One connection: where it comes from, what its client says of itself, its channels; closed by hand.

import { ask, get, path } from "/js/api.js";
import { Chart } from "/js/chart.js";
import { clientName, place } from "/js/clients.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { byteRate, bytes, count, counted, duration, name, value } from "/js/format.js";
import { channelColumns } from "/js/pages/channels.js";
import { stateKind } from "/js/pages/connections.js";
import { badges, empty, facts, page, panel, tiles } from "/js/panels.js";
import { vhostLink } from "/js/permissions.js";
import { go, to } from "/js/router.js";
import { sample, speed } from "/js/samples.js";
import { link, Table } from "/js/table.js";
import { whyPanel } from "/js/why.js";

export function connection({ name: connectionName }) {
  const state = badges();
  const totals = tiles(["Received", "Sent", "Channels", "Open for"]);
  const traffic = new Chart({ title: "Traffic", series: ["Received", "Sent"], format: byteRate });
  const why = whyPanel(() => path`connections/${connectionName}`);
  const about = facts();
  const client = facts();
  const [, , , ...more] = channelColumns();
  const number = {
    title: "Number", kind: "name", text: (row) => row.number,
    node: (row) => link(to("channels", row.name), String(row.number)),
  };
  const channels = new Table({
    columns: [number, ...more],
    key: (row) => row.name,
    label: "Channels",
    empty: () => empty("No channels", "The client has opened none, or has closed all."),
  });
  const element = page(
    {
      title: place(connectionName),
      up: { href: "#/connections", text: "Connections" },
      badges: state.element,
      actions: [button("Close", () => close(connectionName), { kind: "danger" })],
    },
    totals.element,
    why.element,
    el("section", { class: "panel" }, traffic.element),
    panel({ title: "Channels" }, channels.element),
    el(
      "div",
      { class: "columns" },
      panel({ title: "Facts" }, about.element),
      panel({ title: "Client", note: "What the client says of itself." }, client.element),
    ),
  );

  async function load(signal) {
    const found = await get(path`connections/${connectionName}`, {}, signal);
    const opened = await get(path`connections/${connectionName}/channels`, {}, signal);
    return { found, opened, said: await why.load(signal) };
  }

  function show({ found, opened, said }) {
    why.show(said);
    const called = name(clientName(found));
    state.show([
      ...(called ? [[called, "own-name"]] : []),
      [found.state, stateKind(found.state)],
      [found.ssl ? "TLS" : "no TLS", ""],
    ]);
    totals.show([
      bytes(found.recv_oct),
      bytes(found.send_oct),
      count(found.channels),
      duration(Date.now() - found.connected_at),
    ]);
    const octets = sample(`connection octets ${connectionName}`, [found.recv_oct, found.send_oct]);
    traffic.show(sample(
      `connection ${connectionName}`,
      [speed(octets, (each) => each[0]), speed(octets, (each) => each[1])],
    ));
    about.show([
      ["User", name(found.user)],
      ["Virtual host", vhostLink(found.vhost)],
      ["From", `${found.peer_host} port ${found.peer_port}`],
      ["To", `${found.host} port ${found.port}`],
      ["Protocol", found.protocol],
      ["Heartbeat", found.timeout ? `${found.timeout} s` : "none"],
      ["Largest frame", bytes(found.frame_max)],
      ["Channels at most", count(found.channel_max)],
    ]);
    client.show(Object.entries(found.client_properties).map(([key, given]) => [name(key), value(given)]));
    channels.show(opened);
  }

  return { title: connectionName, element, load, show, missing: { href: "#/connections", text: "All connections" } };
}

async function close(connectionName) {
  const now = await get(path`connections/${connectionName}`);
  const opened = await get(path`connections/${connectionName}/channels`);
  const unacked = opened.reduce((sum, each) => sum + each.messages_unacknowledged, 0);
  const consumers = opened.reduce((sum, each) => sum + each.consumer_count, 0);
  const done = await confirm({
    title: "Close this connection?",
    lines: [
      `The client ${name(clientName(now)) || now.peer_host} of user ${name(now.user)} will lose ` +
        `${counted(opened.length, "channel")} and ${counted(consumers, "consumer")}.`,
      unacked > 0 && `${counted(unacked, "unacknowledged message")} will go back to their queues.`,
      "Many clients connect again by themselves.",
    ],
    action: "Close the connection",
    act: () => ask(
      "DELETE",
      path`connections/${connectionName}`,
      { headers: { "x-reason": "Closed by an operator" } },
    ),
  });
  if (done) {
    notice("The connection was closed.", "good");
    go("#/connections");
  }
}
