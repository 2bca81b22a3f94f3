// All exchanges, and a new one.

import { ask, exchange as inPath, get, path } from "/js/api.js";
import { notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, table, text, tick } from "/js/form.js";
import { exchangeName, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPage } from "/js/list.js";
import { argumentList, badge, empty } from "/js/panels.js";
import { go, to } from "/js/router.js";
import { link } from "/js/table.js";
import { vhostOptions } from "/js/vhost_options.js";

export const EXCHANGE_ARGUMENTS = ["alternate-exchange", "x-delayed-type", "x-recent-history-length", "hash-header"];

export function exchanges(context) {
  const declare = () => declareDialog(context);
  return listPage(context, {
    title: "Exchanges",
    nouns: ["exchange", "exchanges"],
    source: (vhost) => (vhost === null ? "exchanges" : path`exchanges/${vhost}`),
    fields: "name,vhost,type,durable,auto_delete,internal,arguments",
    columns: [
      {
        title: "Name", sort: "name", kind: "name", text: (row) => JSON.stringify([row.vhost, row.name]),
        node: (row) => link(to("exchanges", row.vhost, inPath(row.name)), exchangeName(row.name)),
        hint: (row) => exchangeName(row.name),
      },
      {
        title: "Virtual host", sort: "vhost", kind: "secondary of-vhost", width: 104, text: (row) => name(row.vhost),
        hint: (row) => name(row.vhost),
      },
      { title: "Type", sort: "type", width: 150, text: (row) => row.type, hint: (row) => row.type },
      {
        title: "Kind", kind: "secondary", width: 240, text: (row) => featuresOf(row).join(" "),
        node: (row) => el("span", { class: "badges" }, featuresOf(row).map((each) => badge(each))),
      },
      {
        title: "Arguments", kind: "secondary", text: (row) => JSON.stringify(row.arguments),
        node: (row) => argumentList(row.arguments),
        hint: (row) => (Object.keys(row.arguments).length ? JSON.stringify(row.arguments) : ""),
      },
    ],
    key: (row) => JSON.stringify([row.vhost, row.name]),
    vhosts: true,
    actions: [button("Declare an exchange", declare, { kind: "primary", icon: icon("plus") })],
    empty: () => empty(
      "No exchanges that you may see",
      "Every virtual host has some from the beginning. Ask an administrator for permissions on one.",
    ),
  });
}

export function featuresOf(row) {
  return [
    row.durable ? "durable" : "transient",
    row.auto_delete ? "auto-delete" : null,
    row.internal ? "internal" : null,
  ].filter(Boolean);
}

async function declareDialog({ query }) {
  const vhosts = await vhostOptions();
  const types = (await get(
    "overview",
    { columns: "exchange_types" },
  )).exchange_types.map((each) => [each.name, each.name]);
  formDialog({
    title: "Declare an exchange",
    fields: [
      text("name", "Name", { required: true }),
      select("vhost", "Virtual host", vhosts, { value: query.get("vhost") || vhosts[0]?.[0] }),
      select(
        "type",
        "Type",
        types,
        {
          value: "direct",
          hint: "direct: for the same routing key. topic: for a pattern of it. fanout: to all. headers: by headers.",
        },
      ),
      tick("durable", "Durable", { value: true, hint: "It is there again after a restart." }),
      tick("auto_delete", "Auto-delete", { hint: "It goes with the last binding from it." }),
      tick("internal", "Internal", { hint: "Clients cannot publish to it, only other exchanges." }),
      table("arguments", "Arguments", { known: EXCHANGE_ARGUMENTS }),
    ],
    action: "Declare",
    async submit({ name: given, vhost, ...body }) {
      await ask("PUT", path`exchanges/${vhost}/${given}`, { body });
      notice(`Exchange ${name(given)} is there.`, "good");
      go(to("exchanges", vhost, given));
    },
  });
}
