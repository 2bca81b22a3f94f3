// Messages of a queue: looked at where they stand, searched, deleted and moved; or got, as a client gets them.

import { ask, get, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { counted, name } from "/js/format.js";
import { messageRow } from "/js/message_row.js";
import { empty, panel } from "/js/panels.js";
import { queueNames } from "/js/suggest.js";

const PAGE = 20;
const BODY_BYTES = 4096;
const GOT_MAX = 100;
const GOT_BYTES = 50_000;
const STATES = [
  ["ready", "ready"],
  ["unacked", "with consumers"],
];
const WAYS = [
  ["ack_requeue_true", "look, and put them back"],
  ["ack_requeue_false", "take them out of the queue"],
  ["reject_requeue_true", "reject, and put them back"],
  ["reject_requeue_false", "reject them: dead-letter or drop"],
];

export function messagesPanel({ vhost, queue, changed }) {
  const problem = el("p", { class: "problem", role: "alert" });
  const list = el("div", { class: "messages", "aria-live": "polite" });
  const parts = { vhost, queue, changed, problem, list };
  const browse = browsing(parts);
  const got = getting(parts, browse.hide);
  return panel(
    { title: "Messages", note: "To look delivers nothing, and finds messages where they stand." },
    browse.form,
    got,
    problem,
    list,
    browse.foot,
  );
}

/** Where they stand: nothing is delivered. */
function browsing({ vhost, queue, changed, problem, list }) {
  // When it is asked for: not every name can be a part of a path.
  const place = () => path`amqpd/messages/${vhost}/${queue}`;
  const state = select("state", "Messages that are", STATES);
  const messageId = text("message_id", "Message id");
  const header = text("header", "Header", { hint: "NAME or NAME=VALUE" });
  const chosen = new Map();
  const before = button("Earlier", () => turn(-PAGE), { kind: "small" });
  const after = button("Later", () => turn(PAGE), { kind: "small" });
  const every = button("Choose all", all, { kind: "small" });
  const destroy = button("Delete", remove, { kind: "danger small" });
  const shift = button("Move", move, { kind: "small" });
  const foot = el("div", { class: "bar", hidden: true }, before, after, every, destroy, shift);
  let from = 1;
  let asked = null;

  async function look(start, wanted) {
    problem.textContent = "";
    chosen.clear();
    try {
      const found = await get(place(), { ...wanted, from: start, count: PAGE + 1, body: BODY_BYTES });
      [from, asked] = [start, wanted];
      list.replaceChildren(...(found.length ? found.slice(0, PAGE).map(row) : [nothing(start)]));
      before.disabled = start === 1;
      after.disabled = found.length <= PAGE;
      foot.hidden = false;
      mark();
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  function turn(step) {
    return look(Math.max(1, from + step), asked);
  }

  function submit(event) {
    event.preventDefault();
    look(1, { state: state.read(), message_id: messageId.read(), header: header.read() });
  }

  /** What acts is of no use without messages that are chosen; those with consumers are the consumers'. */
  function mark() {
    destroy.disabled = shift.disabled = chosen.size === 0;
    destroy.textContent = chosen.size ? `Delete ${counted(chosen.size, "message")}` : "Delete";
    shift.textContent = chosen.size ? `Move ${counted(chosen.size, "message")}` : "Move";
    every.disabled = list.querySelector("input:not(:disabled)") === null;
  }

  function all() {
    const ticks = [...list.querySelectorAll("input:not(:disabled)")];
    const wanted = ticks.some((each) => !each.checked);
    for (const each of ticks) if (each.checked !== wanted) each.click();
  }

  function row(found) {
    const number = found.position ?? found.id;
    const tick = el("input", {
      type: "checkbox", "aria-label": `Choose message ${number}`,
      disabled: found.state !== "ready" || !Number.isSafeInteger(found.id),
      on: {
        change() {
          if (tick.checked) chosen.set(found.id, found);
          else chosen.delete(found.id);
          mark();
        },
      },
    });
    return el("div", { class: "message choice" }, tick, messageRow(found, { number, shown: BODY_BYTES }));
  }

  async function remove() {
    const done = await confirm({
      title: `Delete ${counted(chosen.size, "message")}?`,
      lines: [`They will be taken out of queue ${name(queue)} and destroyed. This cannot be undone.`],
      action: `Delete ${counted(chosen.size, "message")}`,
      act: () => act("delete", {}, "deleted"),
    });
    if (done) await acted();
  }

  function move() {
    formDialog({
      title: `Move ${counted(chosen.size, "message")}`,
      note: `They leave queue ${name(queue)}, and stand at the end of the other one.`,
      fields: [text("to_queue", "To queue", { required: true, suggestions: queueNames(vhost) })],
      action: "Move",
      async submit(given) {
        await act("move", given, "moved");
        await acted();
      },
    });
  }

  async function act(what, more, said) {
    const ids = [...chosen.keys()].map((each) => [each, each]);
    const told = await ask("POST", `${place()}/${what}`, { body: { ids, yes: true, ...more } });
    notice(`${counted(told.count, "message")} ${told.count === 1 ? "was" : "were"} ${said}.`, "good");
  }

  async function acted() {
    changed();
    if (asked !== null) await look(from, asked);
  }

  const send = el("button", { type: "submit", class: "button primary" }, "Look");
  const form = el("form", { class: "ask", on: { submit } }, state.element, messageId.element, header.element, send);
  const hide = () => ((foot.hidden = true), (asked = null), chosen.clear());
  return { form, foot, hide };
}

/** As a client gets them: they are delivered. `shows()`: others are in the list now. */
function getting({ vhost, queue, changed, problem, list }, shows) {
  const number = el(
    "input",
    { type: "number", min: 1, max: GOT_MAX, "aria-label": "How many messages", set: { value: "1" } },
  );
  const way = el(
    "select",
    { "aria-label": "What becomes of them" },
    WAYS.map(([each, said]) => el("option", { value: each }, said)),
  );

  async function submit() {
    problem.textContent = "";
    const wanted = number.valueAsNumber;
    if (!(wanted >= 1 && wanted <= GOT_MAX)) {
      problem.textContent = `From 1 to ${GOT_MAX} messages at once.`;
      return;
    }
    if (!way.value.endsWith("false")) {
      await fetched(wanted).catch((error) => (problem.textContent = error.message));
      return;
    }
    const taken = way.value === "ack_requeue_false";
    await confirm({
      title: taken ? "Take messages out?" : "Reject messages?",
      lines: [
        `The first ${counted(wanted, "message")} of queue ${name(queue)} will leave it.`,
        taken
          ? "They are shown here, and are nowhere else then."
          : "They go to its dead letter exchange if it has one; else they are gone.",
      ],
      action: taken ? `Take ${counted(wanted, "message")}` : `Reject ${counted(wanted, "message")}`,
      act: () => fetched(wanted),
    });
  }

  async function fetched(wanted) {
    const body = { count: wanted, ackmode: way.value, encoding: "auto", truncate: GOT_BYTES };
    const found = await ask("POST", path`queues/${vhost}/${queue}/get`, { body });
    shows();
    list.replaceChildren(...(
      found.length ? found.map(got) : [empty("The queue is empty", "No message was ready to be got.")]
    ));
    changed();
  }

  return el(
    "div",
    { class: "bar getting" },
    "Or as a client gets them:",
    number,
    way,
    button("Get messages", submit),
    el("span", { class: "hint" }, "They are delivered, and count as redelivered when they are put back."),
  );
}

function got(found, at, { length }) {
  return el(
    "div",
    { class: "message" },
    messageRow(found, { number: at + 1, shown: GOT_BYTES, open: length === 1 }),
  );
}

function nothing(start) {
  return start === 1
    ? empty("No such message", "None is in the queue that is as you asked.")
    : empty("No more messages", "These were the last ones.");
}
