// A policy, added or changed in a form that shows what it would match.

import { ask, path } from "/js/api.js";
import { notice } from "/js/dialog.js";
import { formDialog, number, select, table, text } from "/js/form.js";
import { name } from "/js/format.js";
import { matchPreview } from "/js/policy_matches.js";
import { vhostOptions } from "/js/vhost_options.js";

// What the broker knows, for the list under a field; it refuses others with a reason.
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

/** `kind`: "policies" or "operator-policies"; `row`: the one to change, or null for a new one. */
export async function policyDialog(kind, row, refresh) {
  const vhosts = row === null ? await vhostOptions() : [[row.vhost, name(row.vhost)]];
  const operator = kind === "operator-policies";
  const vhost = select("vhost", "Virtual host", vhosts);
  const pattern = text("pattern", "Pattern", {
    value: row?.pattern ?? "",
    required: true,
    hint: 'A regular expression for names: ^orders\\. is for those that begin with "orders.".',
  });
  const target = select("target", "For", TARGETS, {
    value: row?.["apply-to"] ?? "queues",
  });
  const named = text("name", "Name", { required: true });
  const priority = number("priority", "Priority", {
    value: row?.priority ?? 0,
    hint: "Of several that match, the one with the highest counts.",
  });
  const preview = matchPreview(() => ({
    vhost: vhost.read(), pattern: pattern.read(), "apply-to": target.read(), priority: priority.read() ?? 0,
    name: row?.name ?? named.read(), operator: operator ? "true" : null,
  }));
  const dialog = formDialog({
    title: row === null ? `Add ${operator ? "an operator policy" : "a policy"}` : `Change ${name(row.name)}`,
    fields: [
      ...(row === null ? [named] : []),
      vhost,
      pattern,
      target,
      { name: "preview", element: preview.element, read: () => undefined },
      table("definition", "Definition", { known: KEYS, given: row?.definition ?? {} }),
      priority,
    ],
    action: row === null ? "Add" : "Change",
    async submit({ name: given = row?.name, vhost: where, target: to, preview: _, ...body }) {
      await ask("PUT", path`${kind}/${where}/${given}`, { body: { ...body, "apply-to": to } });
      notice(`Policy ${name(given)} is set.`, "good");
      refresh();
    },
  });
  for (const { control } of [named, vhost, pattern, target, priority]) {
    control.addEventListener("input", preview.look);
  }
  preview.look();
  return dialog;
}
