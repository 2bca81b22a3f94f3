// A message, published by hand: to an exchange, or to a queue through the default exchange.

import { ask, exchange as inPath, path } from "/js/api.js";
import { notice } from "/js/dialog.js";
import { formDialog, longText, select, table, text } from "/js/form.js";
import { exchangeName, name } from "/js/format.js";

/** `queue`: the message goes there by its name, and the routing key is not asked for. */
export function publishDialog({ vhost, exchange = "", queue = null, done }) {
  const key = text("routing_key", "Routing key", { hint: "What it means is up to the type of the exchange." });
  const fields = [
    ...(queue === null ? [key] : []),
    longText("payload", "Payload"),
    select("encoding", "The payload is", [
      ["string", "text"],
      ["base64", "bytes, written in base64"],
    ]),
    text("content_type", "Content type", { hint: "For example application/json. May be empty." }),
    select("delivery_mode", "Kept over a restart", [
      ["2", "yes, if its queue is (persistent)"],
      ["1", "no (transient)"],
    ]),
    table("headers", "Headers"),
  ];
  return formDialog({
    title: queue === null ? `Publish to ${exchangeName(exchange)}` : `Publish to ${name(queue)}`,
    fields,
    action: "Publish",
    async submit(given) {
      const properties = { delivery_mode: Number(given.delivery_mode) };
      if (given.content_type) properties.content_type = given.content_type;
      if (Object.keys(given.headers).length) properties.headers = given.headers;
      const body = {
        routing_key: queue ?? given.routing_key, payload: given.payload, payload_encoding: given.encoding, properties,
      };
      const answer = await ask("POST", path`exchanges/${vhost}/${inPath(exchange)}/publish`, { body });
      if (!answer.routed) throw new Error("The message reached no queue: no binding matches, and it is gone.");
      notice("The message is in a queue.", "good");
      done();
    },
  });
}
