// One channel: what its client does with it, and its consumers.

import { get, path } from "/js/api.js";
import { Chart } from "/js/chart.js";
import { clientName, place } from "/js/clients.js";
import { el } from "/js/elements.js";
import { count, name } from "/js/format.js";
import { mode, prefetch } from "/js/pages/channels.js";
import { consumerColumns } from "/js/pages/consumers.js";
import { badges, empty, facts, page, panel, tiles } from "/js/panels.js";
import { to } from "/js/router.js";
import { sample } from "/js/samples.js";
import { link, Table } from "/js/table.js";

export function channel({ name: channelName }) {
  const kinds = badges();
  const totals = tiles(["Unacknowledged", "Unconfirmed", "Uncommitted", "Consumers"]);
  const waiting = new Chart({
    title: "Messages under way", series: ["Unacknowledged", "Unconfirmed"], format: count,
  });
  const about = facts();
  const [tag, ...more] = consumerColumns({ channel: false });
  const consumers = new Table({
    columns: [
      {
        title: "Queue", kind: "name", text: (row) => row.queue.name,
        node: (row) => link(to("queues", row.queue.vhost, row.queue.name), name(row.queue.name)),
      },
      { ...tag, kind: "secondary", width: 200 },
      ...more,
    ],
    key: (row) => row.consumer_tag,
    label: "Consumers",
    empty: () => empty("No consumers", "The client takes no messages on this channel."),
  });
  const element = page(
    { title: place(channelName), up: { href: "#/channels", text: "Channels" }, badges: kinds.element },
    totals.element,
    el(
      "div",
      { class: "columns" },
      el("section", { class: "panel" }, waiting.element),
      panel({ title: "Facts" }, about.element),
    ),
    panel({ title: "Consumers" }, consumers.element),
  );

  function load(signal) {
    return get(path`channels/${channelName}`, {}, signal);
  }

  function show(found) {
    const { messages_unacknowledged: unacked, messages_unconfirmed: unconfirmed } = found;
    const called = name(clientName(found));
    kinds.show([...(called ? [[called, ""]] : []), [found.state, found.state === "running" ? "good" : "warn"]]);
    totals.show([unacked, unconfirmed, found.messages_uncommitted, found.consumer_count].map(count));
    waiting.show(sample(`channel ${channelName}`, [unacked, unconfirmed]));
    about.show([
      ["Connection", link(to("connections", found.connection_details.name), place(found.connection_details.name))],
      ["Number", count(found.number)],
      ["User", name(found.user)],
      ["Virtual host", name(found.vhost)],
      ["Publishes with", mode(found)],
      ["Prefetch", prefetch(found)],
      ["Uncommitted acks", count(found.acks_uncommitted)],
    ]);
    consumers.show(found.consumer_details);
  }

  return { title: channelName, element, load, show, missing: { href: "#/channels", text: "All channels" } };
}
