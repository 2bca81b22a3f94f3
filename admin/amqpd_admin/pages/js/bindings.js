// Bindings: as a table, made, and taken away.

import { ask, exchange as inPath, part, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, table, text } from "/js/form.js";
import { exchangeName, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPart } from "/js/list_part.js";
import { argumentList, empty } from "/js/panels.js";
import { to } from "/js/router.js";
import { exchangeNames, queueNames } from "/js/suggest.js";
import { link } from "/js/table.js";

const KINDS = { queue: "q", exchange: "e" };

/**
 * A list of them, as `listPart` has it. `end`: which end is shown, "source" or "destination"; the other one is the
 * page's own.
 */
export function bindingList(context, { end, label, none, source, prefix }) {
  const ends = {
    source: {
      title: "From exchange", text: (row) => exchangeName(row.source),
      node: (row) => link(to("exchanges", row.vhost, inPath(row.source)), exchangeName(row.source)),
    },
    destination: {
      title: "To",
      text: (row) => `${row.destination_type} ${row.destination}`,
      node: (row) =>
        el(
          "span",
          {},
          link(to(`${row.destination_type}s`, row.vhost, row.destination), name(row.destination)),
          el("span", { class: "quiet" }, ` ${row.destination_type}`),
        ),
    },
  };
  return listPart(context, {
    nouns: ["binding", "bindings"],
    searched: end === "source" ? "by source or key" : "by target or key",
    source,
    prefix,
    sort: end,
    columns: [
      { ...ends[end], sort: end, kind: "name" },
      {
        title: "Routing key", sort: "routing_key",
        text: (row) => JSON.stringify([row.routing_key, row.arguments]), node: keyOf,
      },
      { title: "", kind: "end", text: (row) => row.source, node: (row) => unbindButton(row, context.refresh) },
    ],
    key: (row) => JSON.stringify([row.source, row.destination_type, row.destination, row.properties_key]),
    label,
    empty: () => empty("No bindings", none),
  });
}

/** The key, and the arguments if there are any. */
function keyOf(row) {
  const key = el("code", {}, el("bdi", {}, name(row.routing_key)));
  return Object.keys(row.arguments).length ? el("span", { class: "stack" }, key, argumentList(row.arguments)) : key;
}

function unbindButton(row, changed) {
  if (row.source === "") return el("span", { class: "quiet" }, "fixed");
  return button("Unbind", () => unbind(row, changed), { kind: "small" });
}

async function unbind(row, changed) {
  const done = await confirm({
    title: "Unbind?",
    lines: [
      `Messages with routing key "${name(row.routing_key)}" go no longer from exchange ${name(row.source)} ` +
        `to ${row.destination_type} ${name(row.destination)}.`,
      "What is in queues already stays there.",
    ],
    action: "Unbind",
    act: () => ask("DELETE", `${between(row)}/${part(row.properties_key)}`),
  });
  if (done) {
    notice("Unbound.", "good");
    changed();
  }
}

function between({ vhost, source, destination_type: kind, destination }) {
  return path`bindings/${vhost}/e/${inPath(source)}/${KINDS[kind]}/${destination}`;
}

/** Binds a queue to an exchange that is asked for, or an exchange (`source`) to what is asked for. */
export function bindDialog({ vhost, source = null, queue = null, done }) {
  const kind = select("destination_type", "To", [
    ["queue", "a queue"],
    ["exchange", "an exchange"],
  ]);
  const names = { queue: queueNames(vhost), exchange: exchangeNames(vhost) };
  const suggestions = (written) => names[kind.read()](written);
  const fields = [
    ...(source === null ? [text("source", "From exchange", { required: true, suggestions: names.exchange })] : []),
    ...(queue === null ? [kind, text("destination", "Its name", { required: true, suggestions })] : []),
    text(
      "routing_key",
      "Routing key",
      { hint: "For a topic exchange: * is one word, # any number of words. A fanout exchange ignores it." },
    ),
    table(
      "arguments",
      "Arguments",
      { hint: "A headers exchange looks for these in the headers of messages.", known: ["x-match"] },
    ),
  ];
  return formDialog({
    title: queue === null ? `Bind ${name(source)}` : `Bind ${name(queue)}`,
    fields,
    action: "Bind",
    async submit(given) {
      const row = {
        vhost, source: source ?? given.source, destination_type: queue === null ? given.destination_type : "queue",
        destination: queue ?? given.destination,
      };
      await ask("POST", between(row), { body: { routing_key: given.routing_key, arguments: given.arguments } });
      notice("Bound.", "good");
      done();
    },
  });
}

export function bindButton(open) {
  return button("Bind", open, { kind: "small", icon: icon("plus") });
}
