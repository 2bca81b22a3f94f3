// One virtual host: what is in it, who may enter it, its limits; and what can be done with it.

import { ask, get, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { count, counted, name, NOTHING } from "/js/format.js";
import { icon } from "/js/icons.js";
import { limitsPanel } from "/js/limits.js";
import { listPart } from "/js/list_part.js";
import { badges, facts, page, panel, tiles } from "/js/panels.js";
import { noPermissions, permissionColumns, permissionDialog, PERMISSIONS_NOTE } from "/js/permissions.js";
import { go } from "/js/router.js";

export function vhost(context) {
  const { name: vhostName, refresh, who } = context;
  const shown = name(vhostName);
  const administers = who.tags.includes("administrator");
  const kinds = badges();
  const totals = tiles(["Ready", "Unacknowledged", "Total messages"]);
  const about = facts();
  const limits = limitsPanel("vhost", vhostName, { may: administers, refresh });
  const set = () => permissionDialog({ vhost: vhostName }, refresh);
  // As it is when somebody presses: the page may not have been filled yet.
  const now = () => get(path`vhosts/${vhostName}`);
  const protect = button("Protect from deletion", async () => changeProtection(await now(), refresh));
  const trace = button("Start tracing", async () => changeTracing(await now(), refresh));
  const change = button("Change", async () => changeDialog(await now(), refresh));
  const remove = button("Delete", () => removeVhost(vhostName), { kind: "danger" });
  const permissions = administers ? permissionList(context, set) : null;
  const filtered = new URLSearchParams({ vhost: vhostName });
  const element = page(
    {
      title: shown,
      up: { href: "#/vhosts", text: "Virtual hosts" },
      badges: kinds.element,
      actions: administers ? [change, trace, protect, remove] : [],
    },
    totals.element,
    el(
      "div",
      { class: "columns" },
      panel(
        { title: "Facts" },
        about.element,
        el(
          "p",
          { class: "links" },
          ["queues", "exchanges", "connections", "channels", "consumers", "policies"].map((each) =>
            el("a", { href: `#/${each}?${filtered}` }, `Its ${each}`),
          ),
        ),
      ),
      limits.element,
    ),
    permissions && panel(
      {
        title: "Permissions",
        actions: [button("Set permissions", set, { kind: "small", icon: icon("plus") })],
        note: PERMISSIONS_NOTE,
      },
      permissions.bar,
      permissions.table.element,
    ),
  );

  async function load(signal) {
    const found = await get(path`vhosts/${vhostName}`, {}, signal);
    const set = await get(path`vhost-limits/${vhostName}`, {}, signal);
    const given = permissions && (await permissions.load(signal));
    return { found, set, given };
  }

  function show({ found, set, given }) {
    kinds.show([
      ...(found.tracing ? [["tracing", "warn"]] : []),
      ...(found.protected_from_deletion ? [["protected from deletion", "good"]] : []),
    ]);
    totals.show([found.messages_ready, found.messages_unacknowledged, found.messages].map(count));
    about.show([
      ["Description", found.description ? name(found.description) : NOTHING],
      ["Tags", found.tags.length ? found.tags.map(name).join(", ") : NOTHING],
      ["Queues that say no type are", found.default_queue_type],
    ]);
    protect.textContent = found.protected_from_deletion ? "Allow deletion" : "Protect from deletion";
    trace.textContent = found.tracing ? "Stop tracing" : "Start tracing";
    remove.disabled = found.protected_from_deletion;
    limits.show(set);
    permissions?.show(given);
  }

  return { title: shown, element, load, show, missing: { href: "#/vhosts", text: "All virtual hosts" } };
}

function permissionList(context, set) {
  return listPart(context, {
    nouns: ["user", "users"],
    source: () => path`vhosts/${context.name}/permissions`,
    columns: permissionColumns("vhost", context.refresh),
    key: (row) => row.user,
    label: "Permissions",
    sort: "user",
    empty: () => noPermissions("vhost", set),
  });
}

function changeDialog(now, refresh) {
  formDialog({
    title: `Change ${name(now.name)}`,
    note: "Queues that are there already keep their type.",
    fields: [
      text("description", "Description", { value: now.description }),
      text("tags", "Tags", { value: now.tags.join(", "), hint: "Words of your own, with commas between." }),
      select(
        "default_queue_type",
        "Queues that say no type are",
        ["classic", "quorum"].map((each) => [each, each]),
        { value: now.default_queue_type },
      ),
    ],
    action: "Change",
    async submit(body) {
      await ask("PUT", path`vhosts/${now.name}`, { body });
      notice("The virtual host is changed.", "good");
      refresh();
    },
  });
}

async function changeProtection({ name: given, protected_from_deletion: is }, refresh) {
  await ask(is ? "DELETE" : "POST", path`vhosts/${given}/deletion/protection`);
  notice(is ? "It can be deleted again." : "It cannot be deleted now.", "good");
  refresh();
}

async function changeTracing({ name: given, tracing }, refresh) {
  await ask("PUT", path`vhosts/${given}`, { body: { tracing: !tracing } });
  notice(tracing ? "Tracing has stopped." : "Messages are copied to exchange amq.rabbitmq.trace now.", "good");
  refresh();
}

/** Also from the list. Whether it was done. */
export async function removeVhost(given) {
  const now = await get(path`vhosts/${given}`);
  const one = { page: 1, page_size: 1, columns: "name" };
  const queues = await get(path`queues/${given}`, one);
  const open = await get(path`vhosts/${given}/connections`, one);
  const done = await confirm({
    title: `Delete virtual host ${name(given)}?`,
    lines: [
      `${counted(queues.total_count, "queue")} with ${counted(now.messages, "message")} will be destroyed, ` +
        "with all exchanges, bindings, policies and permissions in it. This cannot be undone.",
      open.total_count > 0 && `${counted(open.total_count, "connection")} will be closed.`,
    ],
    action: "Delete the virtual host",
    act: () => ask("DELETE", path`vhosts/${given}`),
  });
  if (done) {
    notice(`Virtual host ${name(given)} was deleted.`, "good");
    go("#/vhosts");
  }
  return done;
}
