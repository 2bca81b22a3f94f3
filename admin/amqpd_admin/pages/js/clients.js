// Who a client is: what it calls itself, and where it comes from. Of a connection's name, "from -> to", that is half.

import { el } from "/js/elements.js";
import { name } from "/js/format.js";
import { link } from "/js/table.js";

/** What it calls itself, or is made with; empty if it says neither. */
export function clientName(row) {
  const { connection_name: own, product } = row.client_properties ?? {};
  return [row.user_provided_name, own, product].find((each) => typeof each === "string" && each !== "") ?? "";
}

/** Of a connection's name, or of a channel's, which has its number behind it: without the broker's side. */
export function place(connection) {
  return connection.replace(/ -> \S+/, "");
}

/** A cell: its name is the link, or where it is, if it has none. */
export function clientCell(href, row, full) {
  const said = name(clientName(row));
  return el(
    "span",
    {},
    link(href, said || place(full)),
    said && el("span", { class: "quiet small" }, ` ${place(full)}`),
  );
}

/** All of it, for who points at the cell. */
export function clientHint(row, full) {
  return [name(clientName(row)), full].filter(Boolean).join(": ");
}
