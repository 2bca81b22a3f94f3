// One queue: what is in it and moves through it, who consumes it, what is bound to it; and what can be done with it.

import { ask, get, path } from "/js/api.js";
import { statesOf } from "/js/attention.js";
import { bindButton, bindDialog, bindingList } from "/js/bindings.js";
import { Chart } from "/js/chart.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el, write } from "/js/elements.js";
import { bytes, count, counted, name, NOTHING, rate } from "/js/format.js";
import { messagesPanel } from "/js/messages.js";
import { moveAllDialog } from "/js/move_all.js";
import { consumerColumns } from "/js/pages/consumers.js";
import { kindsOf } from "/js/pages/queues.js";
import { argumentList, badges, empty, facts, page, panel, policyLink, tiles } from "/js/panels.js";
import { vhostLink } from "/js/permissions.js";
import { publishDialog } from "/js/publish.js";
import { go } from "/js/router.js";
import { joined, levels, sample, speeds } from "/js/samples.js";
import { samplesOf, spanSwitch } from "/js/spans.js";
import { Table } from "/js/table.js";
import { whyPanel } from "/js/why.js";

// The page shows these; the list of all consumers has the others.
const CONSUMERS_MAX = 100;
const RATES = ["publish", "deliver_get", "ack"];
const LENGTHS = ["messages_ready", "messages_unacknowledged"];

export function queue(context) {
  const { vhost, name: queueName, refresh } = context;
  const shown = name(queueName);
  const kinds = badges();
  const totals = tiles(["Ready", "Unacknowledged", "Total", "Consumers", "Memory"]);
  const lengths = new Chart({ title: "Messages", series: ["Ready", "Unacknowledged"], format: count });
  const rates = new Chart({
    title: "Message rates", series: ["Published", "Delivered", "Acknowledged"], format: rate,
  });
  const spans = spanSwitch(refresh);
  const about = facts();
  const why = whyPanel(() => path`queues/${vhost}/${queueName}`);
  const consumers = consumerTable();
  const asked = new URLSearchParams({ vhost, name: queueName });
  const moreConsumers = el("a", { class: "more", href: `#/consumers?${asked}`, hidden: true }, "");
  const bindings = bindingList(context, {
    end: "source", label: "Bindings", prefix: "bindings.", source: () => path`queues/${vhost}/${queueName}/bindings`,
    none: "No exchange sends messages here. Bind the queue to one.",
  });
  const key = JSON.stringify(["queue", vhost, queueName]);

  const element = page(
    {
      title: shown,
      up: { href: "#/queues", text: "Queues" },
      badges: kinds.element,
      actions: [
        button("Publish", () => publishDialog({ vhost, queue: queueName, done: refresh }), { kind: "primary" }),
        button("Move all…", () => moveAll({ vhost, queue: queueName, done: refresh })),
        button("Purge", () => purge(vhost, queueName, refresh)),
        button("Delete", () => remove(vhost, queueName), { kind: "danger" }),
      ],
    },
    totals.element,
    why.element,
    panel({ title: "Consumers" }, consumers.element, moreConsumers),
    messagesPanel({ vhost, queue: queueName, changed: refresh }),
    el("div", { class: "spans-bar" }, spans.element),
    el(
      "div",
      { class: "columns" },
      el("section", { class: "panel" }, lengths.element),
      el("section", { class: "panel" }, rates.element),
    ),
    el(
      "div",
      { class: "columns" },
      panel({ title: "Facts" }, about.element),
      panel(
        { title: "Bindings", actions: [bindButton(() => bindDialog({ vhost, queue: queueName, done: refresh }))] },
        bindings.bar,
        bindings.table.element,
      ),
    ),
  );

  async function load(signal) {
    const found = await get(path`queues/${vhost}/${queueName}`, samplesOf(spans.span), signal);
    const bound = await bindings.load(signal);
    return { found, bound, said: await why.load(signal) };
  }

  function show({ found, bound, said }) {
    why.show(said);
    const now = RATES.map((each) => found.message_stats?.[`${each}_details`]?.rate ?? 0);
    kinds.show([
      ...statesOf(found),
      ...kindsOf(found).map((each) => [each, ""]),
    ]);
    totals.show([
      count(found.messages_ready),
      count(found.messages_unacknowledged),
      count(found.messages),
      count(found.consumers),
      bytes(found.memory),
    ]);
    const own = sample(`${key} lengths`, LENGTHS.map((each) => found[each] ?? 0));
    const past = levels(LENGTHS.map((each) => found[`${each}_details`]));
    // Of a queue at another node there are no samples here.
    const sampled = found.messages_ready_details?.samples !== undefined;
    const span = sampled ? spans.span : null;
    spans.element.hidden = !sampled;
    lengths.show(joined(past, own), span);
    const before = speeds(RATES.map((each) => found.message_stats?.[`${each}_details`]));
    rates.show(joined(before, sample(`${key} rates`, now)), span);
    about.show([
      ["Virtual host", vhostLink(found.vhost)],
      ["Node", name(found.node)],
      ["Policy", found.policy ? policyLink(found.policy) : NOTHING],
      ["Operator policy", found.operator_policy ? policyLink(found.operator_policy, "operator") : NOTHING],
      ["Arguments", argumentList(found.arguments)],
      ["From policies", argumentList(found.effective_policy_definition)],
      ["Size of messages", bytes(found.message_bytes)],
      ["Redelivered", rate(found.message_stats?.redeliver_details?.rate ?? 0)],
      ["Consumer capacity", `${Math.round((found.consumer_capacity ?? 0) * 100)} %`],
    ]);
    const rest = found.consumer_details.length - CONSUMERS_MAX;
    consumers.show(found.consumer_details.slice(0, CONSUMERS_MAX));
    moreConsumers.hidden = rest <= 0;
    write(moreConsumers, `${count(rest)} more are in the list of all consumers`);
    bindings.show(bound);
  }

  return { title: shown, element, load, show, missing: { href: "#/queues", text: "All queues" } };
}

function consumerTable() {
  return new Table({
    columns: consumerColumns(),
    key: (row) => JSON.stringify([row.channel_details.name, row.consumer_tag]),
    label: "Consumers",
    empty: () => empty(
      "No consumers",
      "Messages wait here until a client consumes the queue. What is in it is below.",
    ),
  });
}

/** As it is now: what is shown may be two seconds old. */
function fresh(vhost, queueName) {
  return get(path`queues/${vhost}/${queueName}`);
}

function moveAll(given) {
  return moveAllDialog(given).catch((error) => notice(error.message));
}

async function purge(vhost, queueName, refresh) {
  const now = await fresh(vhost, queueName);
  const done = await confirm({
    title: `Purge ${name(queueName)}?`,
    lines: [
      `${counted(now.messages_ready, "ready message")} will be destroyed. This cannot be undone.`,
      now.messages_unacknowledged > 0 &&
        `${counted(now.messages_unacknowledged, "unacknowledged message")} will stay: consumers have them.`,
    ],
    action: "Purge",
    act: () => ask("DELETE", path`queues/${vhost}/${queueName}/contents`),
  });
  if (done) {
    notice("The queue was purged.", "good");
    refresh();
  }
}

async function remove(vhost, queueName) {
  const now = await fresh(vhost, queueName);
  const one = { page: 1, page_size: 1 };
  // That to the default exchange is no binding that somebody made.
  const bound = (await get(path`queues/${vhost}/${queueName}/bindings`, one)).total_count - 1;
  const done = await confirm({
    title: `Delete ${name(queueName)}?`,
    lines: [
      `The queue will be destroyed with ${counted(now.messages, "message")} ` +
        `and ${counted(bound, "binding")}. This cannot be undone.`,
      now.consumers > 0 && `${counted(now.consumers, "consumer")} will be cancelled.`,
    ],
    action: "Delete the queue",
    act: () => ask("DELETE", path`queues/${vhost}/${queueName}`),
  });
  if (done) {
    notice(`Queue ${name(queueName)} was deleted.`, "good");
    go("#/queues");
  }
}
