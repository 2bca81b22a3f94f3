// The virtual hosts that somebody may see, to choose one of them in a form.

import { get } from "/js/api.js";
import { name } from "/js/format.js";

/** `[value, text]` of each. */
export async function vhostOptions() {
  const found = await get("vhosts", { columns: "name" });
  return found.map((each) => [each.name, name(each.name)]);
}
