// One exchange: its bindings both ways, and what can be done with it.

import { ask, get, path } from "/js/api.js";
import { bindButton, bindDialog, bindingTable } from "/js/bindings.js";
import { confirm, notice } from "/js/dialog.js";
import { button } from "/js/elements.js";
import { counted, exchangeName, name } from "/js/format.js";
import { argumentList, badges, facts, page, panel } from "/js/panels.js";
import { featuresOf } from "/js/pages/exchanges.js";
import { publishDialog } from "/js/publish.js";
import { go } from "/js/router.js";

const DEFAULT = "amq.default";

export function exchange({ vhost, name: inPath, refresh }) {
  const real = inPath === DEFAULT ? "" : inPath;
  const shown = exchangeName(real);
  const kinds = badges();
  const about = facts();
  const from = bindingTable({
    end: "destination", label: "Bindings from it",
    none: "Messages that are published here reach no queue. Bind a queue to it.", changed: refresh,
  });
  const into = bindingTable({
    end: "source", label: "Bindings to it", none: "No other exchange sends messages here.", changed: refresh,
  });
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
        actions: own ? [bindButton(() => bindDialog({ vhost, source: real, done: refresh }))] : [],
        note: own ? null : "Every queue is bound to the default exchange by its own name.",
      },
      from.element,
    ),
    own ? panel({ title: "Bindings to it" }, into.element) : null,
  );

  async function load(signal) {
    const found = await get(path`exchanges/${vhost}/${inPath}`, {}, signal);
    const out = await get(path`exchanges/${vhost}/${inPath}/bindings/source`, {}, signal);
    const back = own ? await get(path`exchanges/${vhost}/${inPath}/bindings/destination`, {}, signal) : [];
    return { found, out, back };
  }

  function show({ found, out, back }) {
    kinds.show([[found.type, ""], ...featuresOf(found).map((each) => [each, ""])]);
    about.show([
      ["Virtual host", name(found.vhost)],
      ["Type", found.type],
      ["Arguments", argumentList(found.arguments)],
      ["Bindings", `${counted(out.length, "from it", "from it")}, ${counted(back.length, "to it", "to it")}`],
    ]);
    from.show(out);
    into.show(back);
  }

  return { title: shown, element, load, show, missing: { href: "#/exchanges", text: "All exchanges" } };
}

async function remove(vhost, given) {
  const out = await get(path`exchanges/${vhost}/${given}/bindings/source`);
  const back = await get(path`exchanges/${vhost}/${given}/bindings/destination`);
  const done = await confirm({
    title: `Delete ${name(given)}?`,
    lines: [
      `The exchange will be destroyed with ${counted(out.length, "binding")} from it ` +
        `and ${counted(back.length, "binding")} to it. This cannot be undone.`,
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
