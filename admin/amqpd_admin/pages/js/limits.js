// Limits of virtual hosts and of users: as a panel, set, cleared. To change them is for administrators.

import { ask, get, part } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, number, select, text } from "/js/form.js";
import { count, counted, name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { empty, panel } from "/js/panels.js";

const QUOTAS = [
  ["publish-rate", "Messages in a second", "More than this wait: publishers are slowed down."],
  ["publish-rate-burst", "Messages at once"],
  ["publish-bytes", "Bytes in a second", "Of messages with their properties."],
  ["publish-bytes-burst", "Bytes at once"],
];
/** By owner: `[key, label, hint]`. */
const LIMITS = {
  vhost: [["max-connections", "Connections"], ["max-queues", "Queues"], ...QUOTAS],
  user: [["max-connections", "Connections"], ["max-channels", "Channels"], ...QUOTAS],
};
const OWNERS = { vhost: "Virtual host", user: "User" };

/** `{element, show(rows)}`; rows as the API lists them for one owner. */
export function limitsPanel(owner, ownerName, { may, refresh }) {
  const place = el("div", {});
  const set = async () => limitsDialog(owner, ownerName, await now(owner, ownerName), refresh);
  let before = null;

  function show(rows) {
    const given = rows[0]?.value ?? {};
    const said = JSON.stringify(given);
    if (said === before) return;
    before = said;
    const shown = LIMITS[owner].filter(([key]) => key in given);
    place.replaceChildren(
      shown.length
        ? el(
            "dl",
            { class: "facts" },
            shown.map(([key, label]) => el("div", {}, el("dt", {}, label), el("dd", {}, limitText(given[key])))),
          )
        : empty(
            "No limits",
            `It may ${owner === "vhost" ? "have" : "open"} any number of connections, and publish at any rate.`,
          ),
    );
  }

  const actions = may ? [button("Set limits", set, { kind: "small", icon: icon("plus") })] : [];
  return { element: panel({ title: "Limits", actions }, place), show };
}

/** As they are when somebody presses: the panel may not have been filled yet. */
async function now(owner, ownerName) {
  const [row] = await get(`${owner}-limits/${part(ownerName)}`);
  return row?.value ?? {};
}

function limitText(value) {
  return value < 0 ? "none" : count(value);
}

/** Without a name, it is asked for: `names` are `[value, text]` to choose from, or null to write one. */
export function limitsDialog(owner, ownerName, given, refresh, names = null) {
  const chosen = names ? select("owner", OWNERS[owner], names) : text("owner", OWNERS[owner], { required: true });
  formDialog({
    title: ownerName === null ? "Set limits" : `Limits of ${name(ownerName)}`,
    note: "An empty field is no limit. What is there already stays, also beyond a new limit.",
    fields: [
      ...(ownerName === null ? [chosen] : []),
      ...LIMITS[owner].map(([key, label, hint]) =>
        number(key, label, { value: given[key] ?? "", min: key.startsWith("max") ? -1 : 1, required: false, hint }),
      ),
    ],
    action: "Set limits",
    async submit({ owner: written, ...values }) {
      const whose = ownerName ?? written;
      for (const [key] of LIMITS[owner]) {
        const value = values[key];
        const address = `${owner}-limits/${part(whose)}/${key}`;
        if (Number.isFinite(value)) {
          if (value !== given[key]) await ask("PUT", address, { body: { value } });
        } else if (key in given) await ask("DELETE", address);
      }
      notice("The limits are set.", "good");
      refresh();
    },
  });
}

export async function clearLimits(owner, ownerName, given, refresh) {
  const keys = Object.keys(given);
  const done = await confirm({
    title: `Clear the limits of ${name(ownerName)}?`,
    lines: [`${counted(keys.length, "limit")} will be gone: ${keys.join(", ")}.`],
    action: "Clear the limits",
    async act() {
      for (const key of keys) await ask("DELETE", `${owner}-limits/${part(ownerName)}/${key}`);
    },
  });
  if (done) {
    notice("The limits are cleared.", "good");
    refresh();
  }
}
