// Policies: arguments for all queues or exchanges whose names match. Operator policies are set apart, and limit them.

import { ask, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { count, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPage } from "/js/list.js";
import { argumentList, empty, tabs } from "/js/panels.js";
import { policyDialog } from "/js/policy_dialog.js";
import { matchesOf } from "/js/policy_matches.js";

export function policies(context) {
  const { query, who } = context;
  const operator = query.get("kind") === "operator";
  const kind = operator ? "operator-policies" : "policies";
  const may = who.tags.includes("administrator") || (!operator && who.tags.includes("policymaker"));
  const add = () => policyDialog(kind, null, context.refresh);
  return listPage(context, {
    title: "Policies",
    nouns: ["policy", "policies"],
    source: (vhost) => (vhost === null ? kind : path`${kind}/${vhost}`),
    fields: null,
    before: [tabs([
      ["#/policies", "Policies", !operator],
      ["#/policies?kind=operator", "Operator policies", operator],
    ])],
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
    empty: () => empty(
      operator ? "No operator policies yet" : "No policies yet",
      operator
        ? "An operator policy sets bounds, such as a length limit, that policies and clients cannot widen."
        : "A policy sets arguments, such as a length limit, for all queues whose names match, new and old.",
      may ? button(operator ? "Add an operator policy" : "Add a policy", add, { kind: "primary" }) : null,
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

async function remove(kind, row, refresh) {
  // A pattern that the broker does not take any more is deleted without the number.
  const matched = await matchesOf(row, kind === "operator-policies").catch(() => null);
  const done = await confirm({
    title: `Delete policy ${name(row.name)}?`,
    lines: [
      "What it applies to falls back to the next policy that matches, or to none.",
      matched !== null && `It matches the names of ${matched} now.`,
    ],
    action: "Delete the policy",
    act: () => ask("DELETE", path`${kind}/${row.vhost}/${row.name}`),
  });
  if (done) {
    notice(`Policy ${name(row.name)} was deleted.`, "good");
    refresh();
  }
}
