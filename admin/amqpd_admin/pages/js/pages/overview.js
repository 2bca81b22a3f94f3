// The broker at a glance: what needs attention first; then totals, rates, memory, where clients connect.

import { get } from "/js/api.js";
import { attentionPanel } from "/js/attention.js";
import { Chart } from "/js/chart.js";
import { el } from "/js/elements.js";
import { bytes, count, duration, name, rate } from "/js/format.js";
import { meters } from "/js/meters.js";
import { badges, empty, facts, page, panel, tiles } from "/js/panels.js";
import { joined, levels, sample, speeds } from "/js/samples.js";
import { samplesOf, spanSwitch } from "/js/spans.js";
import { Table } from "/js/table.js";

const RATES = ["publish", "deliver_get", "ack"];
const PROTOCOLS = { amqp: "AMQP", "amqp/ssl": "AMQP over TLS", http: "HTTP", https: "HTTP over TLS" };
const LENGTHS = ["messages_ready", "messages_unacknowledged"];

export function overview({ who, refresh }) {
  const monitors = who.tags.includes("administrator") || who.tags.includes("monitoring");
  const state = badges();
  const attention = attentionPanel();
  const totals = tiles(["Ready", "Unacknowledged", "Total messages"]);
  const objects = places();
  const messages = new Chart({ title: "Messages", series: ["Ready", "Unacknowledged"], format: count });
  const rates = new Chart({
    title: "Message rates", series: ["Published", "Delivered", "Acknowledged"], format: rate,
  });
  const spans = spanSwitch(refresh);
  const node = facts();
  const uses = meters();
  const listeners = new Table({
    columns: [
      { title: "Protocol", text: (row) => PROTOCOLS[row.protocol] ?? row.protocol },
      { title: "Node", kind: "secondary", text: (row) => name(row.node) },
      { title: "Address", text: (row) => row.ip_address, kind: "name" },
      { title: "Port", text: (row) => row.port, kind: "number" },
    ],
    key: (row) => `${row.node} ${row.ip_address} ${row.port}`,
    label: "Listeners",
    empty: () => (monitors
      ? empty("No listeners", "No client can connect to this broker.")
      : empty("Not shown", "Who monitors sees where clients connect.")),
  });
  const element = page(
    { title: "Overview", badges: state.element, actions: monitors ? [spans.element] : [] },
    attention.element,
    totals.element,
    el(
      "div",
      { class: "columns" },
      el("section", { class: "panel" }, messages.element),
      el("section", { class: "panel" }, rates.element),
    ),
    objects.element,
    el(
      "div",
      { class: "columns" },
      panel({ title: "Node" }, node.element, monitors && uses.element),
      panel({ title: "Listeners", note: "Where clients connect." }, listeners.element),
    ),
  );

  async function load(signal) {
    const found = await get("overview", monitors ? samplesOf(spans.span) : {}, signal);
    const nodes = monitors ? await get("nodes", {}, signal) : [];
    const first = nodes.find((row) => row.name === found.node) ?? null;
    return { found, first, needs: await attention.load(signal) };
  }

  function show({ found, first, needs }) {
    attention.show(needs);
    const { messages_ready: ready, messages_unacknowledged: unacked, messages: all } = found.queue_totals;
    const stats = found.message_stats;
    const now = RATES.map((each) => stats[`${each}_details`]?.rate ?? 0);
    const silent = (found.nodes_missing ?? []).map((each) => [`${name(each)} does not answer`, "warn"]);
    state.show([...(needs.needs.length ? [] : [["all is well", "good"]]), ...silent]);
    totals.show([count(ready), count(unacked), count(all)]);
    objects.show(found.object_totals);
    // Who does not monitor has no samples: they would tell of virtual hosts that it may not see. Nor has a cluster.
    const sampled = found.queue_totals.messages_ready_details?.samples !== undefined;
    const span = sampled ? spans.span : null;
    spans.element.hidden = !sampled;
    const past = levels(LENGTHS.map((each) => found.queue_totals[`${each}_details`]));
    messages.show(joined(past, sample("overview messages", [ready, unacked])), span);
    const before = speeds(RATES.map((each) => stats[`${each}_details`]));
    rates.show(joined(before, sample("overview rates", now)), span);
    node.show([
      // Who does not monitor is not told of the node.
      ...(found.node ? [["Name", name(found.node)]] : []),
      ["Cluster", name(found.cluster_name)],
      ["Version", `amqpd ${found.product_version}`],
      ["Speaks as", `RabbitMQ ${found.rabbitmq_version}`],
      ...(first
        ? [
            ["Up for", duration(first.uptime)],
            ["Takes connections", first.being_drained ? "no, it is being shut down" : "yes"],
            ["Data directory", name(first.db_dir)],
          ]
        : []),
    ]);
    if (first) uses.show(usesOf(first));
    listeners.show(found.listeners ?? []);
  }

  return { title: "Overview", element, load, show };
}

/** Numbers of things, each a link to their page. */
function places() {
  const names = {
    queues: "Queues", exchanges: "Exchanges", connections: "Connections", channels: "Channels",
    consumers: "Consumers",
  };
  const values = Object.fromEntries(Object.keys(names).map((each) => [each, el("dd", {}, "\u2007")]));
  const links = Object.entries(names).map(([key, text]) => el(
    "div",
    { class: "tile" },
    el("dt", {}, el("a", { href: `#/${key}` }, text)),
    values[key],
  ));
  const element = el("dl", { class: "tiles" }, links);
  return {
    element,
    show(given) {
      for (const [key, node] of Object.entries(values)) node.textContent = count(given[key]);
    },
  };
}

/** For `meters`. Of a disk it is the room that is left that counts: the bar is full where the alarm begins. */
function usesOf(node) {
  const { mem_used: memory, mem_limit: most, disk_free: free, disk_free_limit: least, fd_used, fd_total } = node;
  return [
    {
      label: "Memory", share: most ? memory / most : null, alarm: node.mem_alarm,
      text: most ? `${bytes(memory)} of ${bytes(most)}` : `${bytes(memory)}, no limit`,
    },
    {
      label: "Disk", share: least ? least / Math.max(free, 1) : null, alarm: node.disk_free_alarm,
      text: least ? `${bytes(free)} free, alarm below ${bytes(least)}` : `${bytes(free)} free`,
    },
    { label: "Open files", share: fd_used / fd_total, alarm: false, text: `${count(fd_used)} of ${count(fd_total)}` },
  ];
}
