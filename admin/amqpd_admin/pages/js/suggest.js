// Names that exist, offered below a field while somebody writes: the broker is asked, and what is written counts.

import { get, path } from "/js/api.js";
import { el, newId } from "/js/elements.js";

const SUGGESTED = 20;
const AFTER_MS = 200;

export function queueNames(vhost) {
  return (written) => namesOf(() => path`queues/${vhost}`, written);
}

export function exchangeNames(vhost) {
  return (written) => namesOf(() => path`exchanges/${vhost}`, written);
}

/** A list for the field; `names(written)` is asked when the field is entered, and while it is written in. */
export function suggest(control, names) {
  const list = el("datalist", { id: newId("names") });
  control.setAttribute("list", list.id);
  let timer = 0;
  let asked = null;

  async function ask() {
    const written = control.value;
    if (written === asked) return;
    asked = written;
    // Without suggestions the form is as good as before; a refusal is told where it is sent.
    const found = await names(written).catch(() => []);
    if (asked === written) list.replaceChildren(...found.map((each) => el("option", { value: each })));
  }

  control.addEventListener("focus", ask);
  control.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, AFTER_MS);
  });
  return list;
}

async function namesOf(place, written) {
  const asked = { page: 1, page_size: SUGGESTED, name: written, columns: "name", disable_stats: true };
  return (await get(place(), asked)).items.map((each) => each.name).filter(Boolean);
}
