// All messages of a queue, or those that died first in one queue, moved to another one: how far it is, and an end.

import { ask, askLines, get, path } from "/js/api.js";
import { notice } from "/js/dialog.js";
import { el, write } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { count, counted, name } from "/js/format.js";
import { queueNames } from "/js/suggest.js";

// Where dead letters come from is looked for in the first ones of the queue.
const LOOKED_AT = 200;
const ORIGIN = "x-first-death-queue";

export async function moveAllDialog({ vhost, queue, done }) {
  const place = path`amqpd/messages/${vhost}/${queue}`;
  const [{ messages_ready: ready }, first] = await Promise.all([
    get(path`queues/${vhost}/${queue}`, { columns: "messages_ready" }),
    get(place, { count: LOOKED_AT }),
  ]);
  const origins = originsOf(first);
  const which = select("which", "Which messages", [
    ["", `all that are ready: ${count(ready)}`],
    ...origins.map((each, at) => [String(at), `those that died first in ${name(each)}`]),
  ]);
  const target = text("to_queue", "To queue", {
    required: true, value: origins.length === 1 ? origins[0] : "", suggestions: queueNames(vhost),
    hint: origins.length === 1 && `The first of them died in ${name(origins[0])}.`,
  });
  const progress = el("progress", { max: Math.max(1, ready), value: 0, "aria-label": "Moved", hidden: true });
  const said = el("p", { class: "quiet numbers move-said", role: "status" }, wouldMove(ready));
  let asked = 0;

  const wanted = () => (which.read() === "" ? { all: true } : { headers: [[ORIGIN, origins[which.read()]]] });
  which.control.addEventListener("change", async () => {
    if (which.read() !== "") target.control.value = origins[which.read()];
    const mine = (asked += 1);
    write(said, "Counting them…");
    // Without "yes" the broker only says how many are meant.
    const meant = await ask("POST", `${place}/delete`, { body: wanted() }).catch((error) => error);
    if (mine !== asked) return;
    write(said, meant instanceof Error ? meant.message : wouldMove(meant.count));
    if (!(meant instanceof Error)) progress.max = Math.max(1, meant.count);
  });

  formDialog({
    title: `Move messages of ${name(queue)}`,
    note: "They stand at the end of the other queue then, as they were published. At any time each is in one of both "
      + "queues, also when the broker dies meanwhile. What comes while they move stays.",
    fields: [which, target],
    below: [progress, said],
    action: "Move all",
    stops: true,
    async submit({ to_queue: to }, signal) {
      progress.hidden = false;
      asked += 1;
      let moved = 0;
      const body = { ...wanted(), to_queue: to, yes: true };
      try {
        const told = await askLines(`${place}/move`, { body, signal }, (line) => {
          moved = line.count;
          progress.value = Math.min(moved, progress.max);
          write(said, `${count(moved)} of ${count(progress.max)} moved.`);
        });
        const stays = told.full ? ` Queue ${name(to)} takes no more: the others stay where they are.` : "";
        const broken = told.damaged ? " The next ones are damaged, and stay: amqpd message list says more." : "";
        if (stays || broken) throw new Error(`${counted(moved, "message")} moved.${stays}${broken}`);
        notice(`${counted(moved, "message")} moved to ${name(to)}.`, "good");
      } catch (error) {
        if (error.name !== "AbortError") throw error;
        notice(`Stopped: ${counted(moved, "message")} moved to ${name(to)}, and perhaps some more.`);
      } finally {
        done();
      }
    },
  });
}

function wouldMove(number) {
  return `${counted(number, "message")} would move.`;
}

/** Queues in which the messages died first, that of most of them at the top. */
function originsOf(messages) {
  const found = new Map();
  for (const each of messages) {
    const origin = each.properties?.headers?.[ORIGIN];
    if (typeof origin === "string") found.set(origin, (found.get(origin) ?? 0) + 1);
  }
  return [...found].sort(([, one], [, other]) => other - one).map(([origin]) => origin);
}
