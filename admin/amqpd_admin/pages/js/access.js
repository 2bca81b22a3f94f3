// May this user do that? Asked of the broker, with the refusal that a client would get. For administrators.

import { get, path } from "/js/api.js";
import { el } from "/js/elements.js";
import { select, text } from "/js/form.js";
import { name } from "/js/format.js";
import { panel } from "/js/panels.js";

const ACTS = [
  ["write exchange", "publish to the exchange"],
  ["read queue", "consume the queue"],
  ["configure queue", "declare or delete the queue"],
  ["configure exchange", "declare or delete the exchange"],
  ["write queue", "bind the queue to something"],
  ["read exchange", "bind something to the exchange"],
];

/** `{element, show(vhosts)}`: names of virtual hosts to choose from. */
export function accessPanel(user) {
  const act = select("act", "May it", ACTS);
  const object = text("name", "Name", { hint: "Empty: the default exchange." });
  const key = text("routing_key", "Routing key", { hint: "For a topic exchange." });
  const vhost = select("vhost", "In virtual host", []);
  const answer = el("p", { class: "answer", role: "status" });
  const send = el("button", { type: "submit", class: "button" }, "Ask");

  async function submit(event) {
    event.preventDefault();
    answer.replaceChildren();
    const [permission, kind] = act.read().split(" ");
    try {
      const said = await get(path`amqpd/access/${vhost.read()}/${user}`, {
        permission, kind, name: object.read(), routing_key: kind === "exchange" ? key.read() : null,
      });
      answer.replaceChildren(
        el("span", { class: `badge ${said.allowed ? "good" : "bad"}` }, said.allowed ? "Yes" : "No"),
        " ",
        el("bdi", {}, said.allowed ? `${name(user)} may do that.` : name(said.reason)),
      );
    } catch (error) {
      answer.replaceChildren(error.message);
    }
  }

  const form = el(
    "form",
    { class: "ask", on: { submit } },
    act.element, object.element, key.element, vhost.element, send,
  );
  let before = "";
  return {
    element: panel({ title: "May it do that?", note: "The broker's own answer; nothing is done." }, form, answer),
    show(vhosts) {
      const said = JSON.stringify(vhosts);
      if (said === before) return;
      before = said;
      const chosen = vhost.read();
      vhost.control.replaceChildren(...vhosts.map((each) => el("option", { value: each }, name(each))));
      if (vhosts.includes(chosen)) vhost.control.value = chosen;
    },
  };
}
