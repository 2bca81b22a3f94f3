// One exchange: its bindings both ways, and what can be done with it.

import { ask, get, path } from "/js/api.js";
import { bindButton, bindDialog, bindingList } from "/js/bindings.js";
import { BindingsPicture } from "/js/bindings_picture.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { count, counted, exchangeName, name, NOTHING } from "/js/format.js";
import { argumentList, badges, facts, page, panel, policyLink } from "/js/panels.js";
import { featuresOf } from "/js/pages/exchanges.js";
import { vhostLink } from "/js/permissions.js";
import { publishDialog } from "/js/publish.js";
import { go } from "/js/router.js";

const DEFAULT = "amq.default";

export function exchange(context) {
  const { vhost, name: inPath, refresh } = context;
  const real = inPath === DEFAULT ? "" : inPath;
  const shown = exchangeName(real);
  const kinds = badges();
  const about = facts();
  const from = bindingList(context, {
    end: "destination", label: "Bindings from it", prefix: "from.",
    source: () => path`exchanges/${vhost}/${inPath}/bindings/source`,
    none: "Messages that are published here reach no queue. Bind a queue to it.",
  });
  const into = bindingList(context, {
    end: "source", label: "Bindings to it", prefix: "to.",
    source: () => path`exchanges/${vhost}/${inPath}/bindings/destination`,
    none: "No other exchange sends messages here.",
  });
  const picture = new BindingsPicture(shown);
  const views = viewSwitch(context, from.table.element, picture.element);
  const own = real !== "";
  const element = page(
    {
      title: shown,
      up: { href: "#/exchanges", text: "Exchanges" },
      badges: kinds.element,
      actions: [
        button("Publish", () => publishDialog({ vhost, exchange: real, done: refresh }), { kind: "primary" }),
        ...(
          own && !real.startsWith("amq.") ? [button("Delete", () => remove(vhost, inPath), { kind: "danger" })] : []
        ),
      ],
    },
    panel({ title: "Facts" }, about.element),
    panel(
      {
        title: "Bindings from it",
        actions: [views, own && bindButton(() => bindDialog({ vhost, source: real, done: refresh }))],
        note: own ? null : "Every queue is bound to the default exchange by its own name.",
      },
      from.bar,
      picture.element,
      from.table.element,
    ),
    own ? panel({ title: "Bindings to it" }, into.bar, into.table.element) : null,
  );

  async function load(signal) {
    const found = await get(path`exchanges/${vhost}/${inPath}`, {}, signal);
    const out = await from.load(signal);
    const back = own ? await into.load(signal) : null;
    return { found, out, back };
  }

  function show({ found, out, back }) {
    kinds.show([[found.type, ""], ...featuresOf(found).map((each) => [each, ""])]);
    about.show([
      ["Virtual host", vhostLink(found.vhost)],
      ["Type", found.type],
      ["Policy", found.policy ? policyLink(found.policy) : NOTHING],
      ["Arguments", argumentList(found.arguments)],
      ["Bindings", `${count(out.total_count)} from it, ${count(back?.total_count ?? 0)} to it`],
    ]);
    from.show(out);
    picture.show(out.items);
    if (own) into.show(back);
  }

  return { title: shown, element, load, show, missing: { href: "#/exchanges", text: "All exchanges" } };
}

/** The bindings as a table or as a picture: which one stands in the address. */
function viewSwitch({ query, setQuery }, table, picture) {
  const views = { table: "Table", picture: "Picture" };
  const choices = Object.entries(views).map(([view, text]) =>
    el("button", { type: "button", on: { click: () => choose(view) } }, text),
  );

  function choose(view) {
    setQuery({ view: view === "table" ? null : view });
    draw(view);
  }

  function draw(view) {
    table.classList.toggle("without-rows", view === "picture");
    picture.hidden = view !== "picture";
    Object.keys(views).forEach((each, at) => choices[at].setAttribute("aria-pressed", String(each === view)));
  }

  draw(query.get("view") === "picture" ? "picture" : "table");
  return el("div", { class: "switch", role: "group", "aria-label": "Bindings as" }, choices);
}

async function remove(vhost, given) {
  const one = { page: 1, page_size: 1 };
  const out = await get(path`exchanges/${vhost}/${given}/bindings/source`, one);
  const back = await get(path`exchanges/${vhost}/${given}/bindings/destination`, one);
  const done = await confirm({
    title: `Delete ${name(given)}?`,
    lines: [
      `The exchange will be destroyed with ${counted(out.total_count, "binding")} from it ` +
        `and ${counted(back.total_count, "binding")} to it. This cannot be undone.`,
      "Clients that publish to it will have their channels closed.",
    ],
    action: "Delete the exchange",
    act: () => ask("DELETE", path`exchanges/${vhost}/${given}`),
  });
  if (done) {
    notice(`Exchange ${name(given)} was deleted.`, "good");
    go("#/exchanges");
  }
}
