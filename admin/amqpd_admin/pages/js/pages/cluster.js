// The cluster: its nodes, where quorum queues and their copies are, how far the copies are behind.

import { get } from "/js/api.js";
import { el } from "/js/elements.js";
import { bytes, count, name } from "/js/format.js";
import { badge, badges, empty, page, panel } from "/js/panels.js";
import { Table } from "/js/table.js";

// One that is isolated lives, and the others refuse it or do not reach it.
const stateOf = (row) => (row.lives ? (row.isolated ? "isolated" : "lives") : "gone");

export function cluster() {
  const state = badges();
  const says = el("ul", { class: "why" });
  const members = memberTable();
  const sources = sourceTable();
  const peers = peerTable();
  const alone = panel({ title: "One node" }, empty(
    "This broker is alone",
    "With other nodes, quorum queues are kept on several machines, and survive the loss of one. "
    + "docs/clustering.md says how to set them up.",
  ));
  const parts = el(
    "div",
    { class: "page" },
    panel({ title: "How it is" }, says),
    panel({ title: "Nodes" }, members.element),
    panel({ title: "Sources", note: "Logs of quorum queues, each with its copies." }, sources.element),
    panel({ title: "Copies of this node's sources", note: "As this node, their leader, knows." }, peers.element),
  );
  alone.hidden = parts.hidden = true;
  let before = "";

  function show(found) {
    alone.hidden = found.clustered;
    parts.hidden = !found.clustered;
    if (!found.clustered) return state.show([]);
    const bad = found.members.some((row) => stateOf(row) !== "lives") || found.sources.some((row) => !row.well);
    state.show([[`seen from ${name(found.node)}`, ""], bad ? ["not all is well", "warn"] : ["all is well", "good"]]);
    const said = JSON.stringify(found.says);
    if (said !== before) {
      before = said;
      says.replaceChildren(...found.says.map((each) => el("li", {}, el("bdi", {}, name(each)))));
    }
    members.show(found.members);
    sources.show(found.sources);
    peers.show(found.statistics.peers ?? []);
  }

  return {
    title: "Cluster",
    element: page({ title: "Cluster", badges: state.element }, alone, parts),
    load: (signal) => get("amqpd/cluster", {}, signal),
    show,
  };
}

function memberTable() {
  return new Table({
    columns: [
      { title: "Node", kind: "name", text: (row) => name(row.name) },
      {
        title: "State", text: stateOf,
        node: (row) => badge(stateOf(row), stateOf(row) === "lives" ? "good" : "bad"),
      },
      { title: "Version", kind: "secondary", text: (row) => name(row.version ?? "") },
      {
        title: "Place", kind: "secondary",
        text: (row) => [row.region, row.label].filter(Boolean).map(name).join(" / "),
      },
      { title: "Address", kind: "secondary", text: (row) => (row.lives ? name(`${row.host}:${row.port}`) : "") },
      { title: "Leaders", kind: "number", text: (row) => count(row.leaders) },
      {
        title: "Copies", kind: "number",
        text: (row) => count(row.copies) + more(row.copies_of_another_disk),
      },
    ],
    key: (row) => row.name,
    label: "Nodes",
    empty: () => empty("No nodes", "No node has said yet that it lives."),
  });
}

/** Copies on a disk that the source's record does not name yet. */
function more(others) {
  return others ? ` + ${count(others)} not yet` : "";
}

function sourceTable() {
  return new Table({
    columns: [
      { title: "Sources", kind: "name", text: (row) => row.numbers },
      { title: "Queues", kind: "number", text: (row) => count(row.queues) },
      { title: "Leader", text: (row) => name(row.leader || "none") },
      { title: "Copies", kind: "secondary", text: (row) => row.members.map(name).join(", ") },
      {
        title: "State", kind: "long", text: (row) => `${row.well} ${row.says}`,
        node: (row) => el(
          "span", {}, badge(row.well ? "well" : "not well", row.well ? "good" : "warn"), " ", name(row.says),
        ),
      },
    ],
    key: (row) => row.numbers,
    label: "Sources",
    empty: () => empty(
      "No quorum queues yet", "Declare a queue with x-queue-type: quorum: it is kept on several nodes.",
    ),
  });
}

function peerTable() {
  return new Table({
    columns: [
      { title: "Node", kind: "name", text: (row) => name(row.peer) },
      { title: "Of the set", kind: "secondary", text: (row) => row.members.map(name).join(", ") },
      {
        title: "Connected", text: (row) => (row.connected ? "yes" : "no"),
        node: (row) => badge(row.connected ? "yes" : "no", row.connected ? "good" : "bad"),
      },
      { title: "On their way", kind: "number", text: (row) => count(row.transactions) },
      { title: "Behind", kind: "number", text: (row) => bytes(row.lag_bytes) },
      { title: "Sources behind", kind: "number", text: (row) => count(row.sources_behind) },
    ],
    key: (row) => JSON.stringify([row.peer, row.members]),
    label: "Copies of this node's sources",
    empty: () => empty("Nothing to copy", "This node leads no source."),
  });
}
