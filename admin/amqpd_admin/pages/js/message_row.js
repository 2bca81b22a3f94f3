// One message, as a row that opens: how its body begins and why it died; behind that all that is known of it.

import { el } from "/js/elements.js";
import { bytes, count, duration, exchangeName, name, value } from "/js/format.js";
import { badge } from "/js/panels.js";

// What is seen of a body in a row: more than a wide window shows.
const BEGINNING = 240;

/**
 * `found`: a row of `amqpd/messages`, or of a queue's `get`. `number` is said of it; `shown`: how many bytes of
 * bodies were asked for; `open`: at once.
 */
export function messageRow(found, { number, shown, open = false }) {
  const headers = found.properties?.headers ?? {};
  const cut = found.payload_truncated ?? found.payload_bytes > shown;
  const said = [
    bytes(found.payload_bytes),
    found.age_s === undefined ? null : `${duration(found.age_s * 1000)} old`,
    found.redelivered && "redelivered",
  ];
  const encoding = found.payload_encoding;
  return el(
    "details",
    { open },
    el(
      "summary",
      {},
      el("span", { class: "message-number numbers" }, number),
      el("span", { class: "message-start" }, el("bdi", {}, beginning(found))),
      ...died(headers),
      el("span", { class: "quiet message-said" }, said.filter(Boolean).join(", ")),
    ),
    el(
      "dl",
      { class: "facts narrow" },
      facts(found, headers).map(
        ([term, given]) => el("div", {}, el("dt", {}, term), el("dd", {}, el("bdi", {}, given)))
      ),
    ),
    el("pre", { class: "payload", tabindex: "0" }, found.damage ?? found.payload),
    cut && !found.damage && el("p", { class: "quiet" }, `Only the first ${bytes(shown)} are shown.`),
    encoding !== "string" && el("p", { class: "quiet" }, `The payload is no text: it is shown in ${encoding}.`),
  );
}

function facts(found, { "x-death": deaths, ...headers }) {
  const { headers: _, ...properties } = found.properties ?? {};
  return [
    ["Exchange", exchangeName(found.exchange ?? "")],
    ["Routing key", name(found.routing_key ?? "")],
    ...(Array.isArray(deaths) ? deaths.map((each) => ["Died", deathOf(each)]) : []),
    ...Object.entries(properties).map(([key, given]) => [key, value(given)]),
    ...Object.entries(headers).map(([key, given]) => [`header ${name(key)}`, value(given)]),
    ...(found.delivery_count ? [["Delivered before", count(found.delivery_count)]] : []),
    ...(found.connection ? [["Held by", name(found.connection)]] : []),
  ];
}

function beginning(found) {
  if (found.damage) return "(damaged)";
  if (found.payload_bytes === 0) return "(empty)";
  return name(found.payload.slice(0, BEGINNING).replace(/\s+/g, " "));
}

/** Of a dead letter its last death, as a badge. */
function died({ "x-death": deaths }) {
  const last = Array.isArray(deaths) ? deaths[0] : null;
  return last && typeof last === "object" ? [badge(deathOf(last), "warn message-death")] : [];
}

function deathOf({ reason, queue, count: times }) {
  const often = times > 1 ? ` ${count(times)} times` : "";
  return `${name(reason ?? "died")} in ${name(queue ?? "?")}${often}`;
}
