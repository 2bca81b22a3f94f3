// Messages of a queue: got by hand, to be looked at or to be taken.

import { ask, path } from "/js/api.js";
import { confirm } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { bytes, counted, exchangeName, name, value } from "/js/format.js";
import { empty, panel } from "/js/panels.js";

const MESSAGES_MAX = 100;
const PAYLOAD_BYTES_MAX = 50_000;
const WAYS = [
  ["ack_requeue_true", "look, and put them back"],
  ["ack_requeue_false", "take them out of the queue"],
  ["reject_requeue_true", "reject, and put them back"],
  ["reject_requeue_false", "reject them: dead-letter or drop"],
];

export function messagesPanel({ vhost, queue, changed }) {
  const count = el(
    "input",
    { type: "number", min: 1, max: MESSAGES_MAX, "aria-label": "How many messages", set: { value: "1" } },
  );
  const way = el(
    "select",
    { "aria-label": "What becomes of them" },
    WAYS.map(([each, text]) => el("option", { value: each }, text)),
  );
  const problem = el("p", { class: "problem", role: "alert" });
  const list = el("div", { class: "messages", "aria-live": "polite" });

  async function get() {
    problem.textContent = "";
    const wanted = count.valueAsNumber;
    if (!(wanted >= 1 && wanted <= MESSAGES_MAX)) {
      problem.textContent = `From 1 to ${MESSAGES_MAX} messages at once.`;
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
    const body = { count: wanted, ackmode: way.value, encoding: "auto", truncate: PAYLOAD_BYTES_MAX };
    const found = await ask("POST", path`queues/${vhost}/${queue}/get`, { body });
    list.replaceChildren(...(
      found.length ? found.map(message) : [empty("The queue is empty", "No message was ready to be got.")]
    ));
    changed();
  }

  const form = el(
    "div",
    { class: "bar" },
    "Get",
    count,
    "and",
    way,
    button("Get messages", get, { kind: "primary" }),
  );
  return panel({ title: "Get", note: "Messages that are put back count as redelivered." }, form, problem, list);
}

function message(found, at) {
  const cut = found.payload_bytes > PAYLOAD_BYTES_MAX;
  const properties = Object.entries(found.properties ?? {}).filter(([key]) => key !== "headers");
  const headers = Object.entries(found.properties?.headers ?? {});
  const rows = [
    ["Exchange", exchangeName(found.exchange)],
    ["Routing key", name(found.routing_key)],
    ...properties.map(([key, given]) => [key, value(given)]),
    ...headers.map(([key, given]) => [`header ${name(key)}`, value(given)]),
  ];
  return el(
    "section",
    { class: "message" },
    el(
      "h3",
      {},
      `Message ${at + 1}`,
      el("span", { class: "quiet" }, ` ${bytes(found.payload_bytes)}${found.redelivered ? ", redelivered" : ""}`),
    ),
    el(
      "dl",
      { class: "facts narrow" },
      rows.map(([term, said]) => el("div", {}, el("dt", {}, term), el("dd", {}, el("bdi", {}, said)))),
    ),
    el("pre", { class: "payload", tabindex: "0" }, found.payload),
    cut && el("p", { class: "quiet" }, `Only the first ${bytes(PAYLOAD_BYTES_MAX)} are shown.`),
    found.payload_encoding === "base64" && el(
      "p",
      { class: "quiet" },
      "The payload is no text: it is shown in base64.",
    ),
  );
}
