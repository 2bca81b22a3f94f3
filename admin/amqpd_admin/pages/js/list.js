// A page with one list: what can be done, the list's bar, its table.

import { listPart } from "/js/list_part.js";
import { page } from "/js/panels.js";

/** `before` stands above the list; all else is as in `list_part.js`. */
export function listPage(context, { title, actions = [], before = [], ...more }) {
  const list = listPart(context, { label: title, ...more });
  const element = page({ title, actions }, before, list.bar, list.table.element);
  return { title, element, load: list.load, show: list.show };
}
