// Policies: arguments for all queues or exchanges whose names match. Operator policies are set apart, and limit them.

import { ask, get, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, number, select, table, text } from "/js/form.js";
import { count, counted, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPage } from "/js/list.js";
import { argumentList, empty } from "/js/panels.js";
import { vhostOptions } from "/js/vhost_options.js";

const KEYS = [
  "alternate-exchange",
  "dead-letter-exchange",
  "dead-letter-routing-key",
  "delivery-limit",
  "expires",
  "max-length",
  "max-length-bytes",
  "message-ttl",
  "overflow",
];
const TARGETS = [
  ["queues", "queues"],
  ["classic_queues", "classic queues"],
  ["quorum_queues", "quorum queues"],
  ["exchanges", "exchanges"],
  ["all", "queues and exchanges"],
];

export function policies(context) {
  const { query, who } = context;
  const operator = query.get("kind") === "operator";
  const kind = operator ? "operator-policies" : "policies";
  const may = who.tags.includes("administrator") || (!operator && who.tags.includes("policymaker"));
  const add = () => policyDialog(kind, null, context.refresh);
  const tabs = el(
    "div",
    { class: "tabs" },
    el("a", { href: "#/policies", "aria-current": operator ? null : "page" }, "Policies"),
    el("a", { href: "#/policies?kind=operator", "aria-current": operator ? "page" : null }, "Operator policies"),
  );
  return listPage(context, {
    title: "Policies",
    nouns: ["policy", "policies"],
    source: (vhost) => (vhost === null ? kind : path`${kind}/${vhost}`),
    fields: null,
    before: [tabs],
    columns: [
      { title: "Name", sort: "name", kind: "name", text: (row) => name(row.name) },
      { title: "Virtual host", sort: "vhost", kind: "secondary", text: (row) => name(row.vhost) },
      {
        title: "Pattern", sort: "pattern", text: (row) => row.pattern,
        node: (row) => el("code", {}, el("bdi", {}, name(row.pattern))),
      },
      { title: "For", sort: "apply-to", kind: "secondary", text: (row) => name(row["apply-to"]) },
      {
        title: "Definition", text: (row) => JSON.stringify(row.definition),
        node: (row) => argumentList(row.definition),
      },
      { title: "Priority", sort: "priority", kind: "number secondary", text: (row) => count(row.priority) },
      ...(
        may ? [{
          title: "", kind: "end", text: (row) => JSON.stringify(row),
          node: (row) => tools(kind, row, context.refresh),
        }] : []
      ),
    ],
    key: (row) => JSON.stringify([row.vhost, row.name]),
    vhosts: may,
    actions: may ? [button(
      operator ? "Add an operator policy" : "Add a policy",
      add,
      { kind: "primary", icon: icon("plus") },
    )] : [],
    empty: () =>
      empty(
        "No policies yet",
        "A policy sets arguments, such as a length limit, for all queues whose names match, new and old.",
        may ? button("Add a policy", add, { kind: "primary" }) : null,
      ),
  });
}

function tools(kind, row, refresh) {
  return el(
    "span",
    { class: "tools" },
    button("Change", () => policyDialog(kind, row, refresh), { kind: "small" }),
    button("Delete", () => remove(kind, row, refresh), { kind: "small" }),
  );
}

async function policyDialog(kind, row, refresh) {
  const vhosts = row === null ? await vhostOptions() : [[row.vhost, name(row.vhost)]];
  formDialog({
    title: row === null ? "Add a policy" : `Change ${name(row.name)}`,
    fields: [
      ...(row === null ? [text("name", "Name", { required: true })] : []),
      select("vhost", "Virtual host", vhosts),
      text(
        "pattern",
        "Pattern",
        {
          value: row?.pattern ?? "", required: true,
          hint: "A regular expression for names: ^orders\\. is for those that begin with \"orders.\".",
        },
      ),
      select("target", "For", TARGETS, { value: row?.["apply-to"] ?? "queues" }),
      table("definition", "Definition", { known: KEYS, given: row?.definition ?? {} }),
      number(
        "priority",
        "Priority",
        { value: row?.priority ?? 0, hint: "Of several that match, the one with the highest counts." },
      ),
    ],
    action: row === null ? "Add" : "Change",
    async submit({ name: given = row?.name, vhost, target, ...body }) {
      await ask("PUT", path`${kind}/${vhost}/${given}`, { body: { ...body, "apply-to": target } });
      notice(`Policy ${name(given)} is set.`, "good");
      refresh();
    },
  });
}

/** How many queues have names that match; null where the broker takes no such expression for lists. */
async function matching(vhost, pattern) {
  try {
    return (await get(
      path`queues/${vhost}`,
      { page: 1, page_size: 1, name: pattern, use_regex: "true", columns: "name" },
    )).filtered_count;
  } catch {
    return null;
  }
}

async function remove(kind, row, refresh) {
  const matched = await matching(row.vhost, row.pattern);
  const done = await confirm({
    title: `Delete policy ${name(row.name)}?`,
    lines: [
      "What it applies to falls back to the next policy that matches, or to none.",
      matched !== null && row["apply-to"] !== "exchanges" &&
        `It matches the names of ${counted(matched, "queue")} now.`,
    ],
    action: "Delete the policy",
    act: () => ask("DELETE", path`${kind}/${row.vhost}/${row.name}`),
  });
  if (done) {
    notice(`Policy ${name(row.name)} was deleted.`, "good");
    refresh();
  }
}
