// Messages of a queue where they stand: looked at without a delivery, searched, deleted and moved.

import { ask, get, path } from "/js/api.js";
import { confirm, notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, select, text } from "/js/form.js";
import { bytes, count, counted, duration, exchangeName, name, value } from "/js/format.js";
import { empty, panel } from "/js/panels.js";

const PAGE = 20;
const BODY_BYTES = 4096;
const STATES = [
  ["ready", "ready"],
  ["unacked", "with consumers"],
];

export function browsePanel({ vhost, queue, changed }) {
  // When it is asked for: not every name can be a part of a path.
  const place = () => path`amqpd/messages/${vhost}/${queue}`;
  const state = select("state", "Messages that are", STATES);
  const messageId = text("message_id", "Message id");
  const header = text("header", "Header", { hint: "NAME or NAME=VALUE" });
  const problem = el("p", { class: "problem", role: "alert" });
  const list = el("div", { class: "messages", "aria-live": "polite" });
  const chosen = new Map();
  const before = button("Earlier", () => turn(-PAGE), { kind: "small" });
  const after = button("Later", () => turn(PAGE), { kind: "small" });
  const destroy = button("Delete", remove, { kind: "danger small" });
  const shift = button("Move", move, { kind: "small" });
  const foot = el("div", { class: "bar", hidden: true }, before, after, destroy, shift);
  let from = 1;
  let asked = {};

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
  }

  function row(found) {
    const tick = el("input", {
      type: "checkbox", "aria-label": `Choose message ${found.position ?? found.id}`,
      disabled: found.state !== "ready" || !Number.isSafeInteger(found.id),
      on: {
        change() {
          if (tick.checked) chosen.set(found.id, found);
          else chosen.delete(found.id);
          mark();
        },
      },
    });
    return el("div", { class: "message choice" }, tick, details(found));
  }

  const ids = () => [...chosen.keys()].map((each) => [each, each]);

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
      fields: [text("to_queue", "To queue", { required: true })],
      action: "Move",
      async submit(given) {
        await act("move", given, "moved");
        await acted();
      },
    });
  }

  async function act(what, more, said) {
    const told = await ask("POST", `${place()}/${what}`, { body: { ids: ids(), yes: true, ...more } });
    notice(`${counted(told.count, "message")} ${told.count === 1 ? "was" : "were"} ${said}.`, "good");
  }

  async function acted() {
    changed();
    await look(from, asked);
  }

  const send = el("button", { type: "submit", class: "button primary" }, "Look");
  const form = el("form", { class: "ask", on: { submit } }, state.element, messageId.element, header.element, send);
  return panel({ title: "Browse", note: "Nothing is delivered by looking." }, form, problem, list, foot);
}

function nothing(start) {
  return start === 1
    ? empty("No such message", "None is in the queue that is as you asked.")
    : empty("No more messages", "These were the last ones.");
}

function details(found) {
  const { headers = {}, ...properties } = found.properties ?? {};
  const facts = [
    ["Exchange", exchangeName(found.exchange ?? "")],
    ["Routing key", name(found.routing_key ?? "")],
    ...Object.entries(properties).map(([key, given]) => [key, value(given)]),
    ...Object.entries(headers).map(([key, given]) => [`header ${name(key)}`, value(given)]),
    ...(found.delivery_count ? [["Delivered before", count(found.delivery_count)]] : []),
    ...(found.connection ? [["Held by", name(found.connection)]] : []),
  ];
  const age = `${duration(found.age_s * 1000)} old`;
  const said = [bytes(found.payload_bytes), age, found.redelivered && "redelivered"];
  return el(
    "details",
    {},
    el(
      "summary",
      {},
      el("bdi", {}, `${found.position === null ? "" : `${count(found.position)}: `}${name(found.routing_key ?? "")}`),
      el("span", { class: "quiet" }, ` ${said.filter(Boolean).join(", ")}`),
    ),
    el(
      "dl",
      { class: "facts narrow" },
      facts.map(([term, given]) => el("div", {}, el("dt", {}, term), el("dd", {}, el("bdi", {}, given)))),
    ),
    el("pre", { class: "payload", tabindex: "0" }, found.damage ?? found.payload),
    found.payload_truncated && el("p", { class: "quiet" }, `Only the first ${bytes(BODY_BYTES)} are shown.`),
    found.payload_encoding === "base64" && el("p", { class: "quiet" }, "No text: shown in base64."),
  );
}
