// Topic permissions of a user: which routing keys it may use at topic exchanges. As a panel, set, cleared.

import { ask, exchange as inPath, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { exchangeName, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { empty, panel } from "/js/panels.js";
import { patternCell, vhostLink } from "/js/permissions.js";
import { Table } from "/js/table.js";
import { vhostOptions } from "/js/vhost_options.js";

/** `{element, show(rows)}`. */
export function topicPermissionsPanel(user, refresh) {
  const set = () => dialogFor({ user }, refresh);
  const table = new Table({
    columns: [
      { title: "Virtual host", kind: "name", text: (row) => row.vhost, node: (row) => vhostLink(row.vhost) },
      { title: "Exchange", text: (row) => exchangeName(row.exchange) },
      { title: "Write", ...patternCell("write") },
      { title: "Read", ...patternCell("read") },
      {
        title: "", kind: "end", text: (row) => JSON.stringify(row),
        node: (row) => el(
          "span",
          { class: "tools" },
          button("Change", () => dialogFor(row, refresh), { kind: "small" }),
          button("Clear", () => clear(row, refresh), { kind: "small" }),
        ),
      },
    ],
    key: (row) => JSON.stringify([row.vhost, row.exchange]),
    label: "Topic permissions",
    empty: () => empty(
      "No topic permissions",
      "With permissions on a topic exchange, the user may use all routing keys there.",
    ),
  });
  const element = panel(
    {
      title: "Topic permissions",
      actions: [button("Set topic permissions", set, { kind: "small", icon: icon("plus") })],
      note: "Regular expressions for routing keys: write to publish with, read to bind with.",
    },
    table.element,
  );
  return { element, show: (rows) => table.show(rows) };
}

async function dialogFor(row, refresh) {
  const fresh = row.exchange === undefined;
  const vhosts = fresh ? await vhostOptions() : [[row.vhost, name(row.vhost)]];
  const hint = "A regular expression for routing keys. Empty: none.";
  formDialog({
    title: `Topic permissions of ${name(row.user)}`,
    fields: [
      select("vhost", "Virtual host", vhosts),
      ...(fresh ? [text("exchange", "Exchange", { value: "amq.topic", required: true })] : []),
      text("write", "Write", { value: row.write ?? ".*", hint }),
      text("read", "Read", { value: row.read ?? ".*", hint }),
    ],
    action: "Set topic permissions",
    async submit({ vhost, exchange = row.exchange, write, read }) {
      await ask("PUT", path`topic-permissions/${vhost}/${row.user}`, { body: { exchange, write, read } });
      notice("The topic permissions are set.", "good");
      refresh();
    },
  });
}

async function clear(row, refresh) {
  const done = await confirm({
    title: "Clear topic permissions?",
    lines: [
      `User ${name(row.user)} may use all routing keys at exchange ${exchangeName(row.exchange)} ` +
        `in virtual host ${name(row.vhost)} then, as far as its permissions there let it.`,
    ],
    action: "Clear",
    act: () => ask("DELETE", path`topic-permissions/${row.vhost}/${row.user}/${inPath(row.exchange)}`),
  });
  if (done) refresh();
}
