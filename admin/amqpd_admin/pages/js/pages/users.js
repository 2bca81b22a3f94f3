// All users, and a new one. For administrators.

import { ask, path } from "/js/api.js";
import { notice } from "/js/dialog.js";
import { button, el } from "/js/elements.js";
import { formDialog, text, tick } from "/js/form.js";
import { name } from "/js/format.js";
import { icon } from "/js/icons.js";
import { listPage } from "/js/list.js";
import { badge, empty } from "/js/panels.js";
import { go, to } from "/js/router.js";
import { link } from "/js/table.js";

export const TAGS = [
  ["administrator", "Administrator", "Everything."],
  ["monitoring", "Monitoring", "Sees everything of all virtual hosts."],
  ["policymaker", "Policy maker", "Sets policies where it has permissions."],
  ["management", "Management", "Uses these pages where it has permissions."],
];

export function users(context) {
  const add = () => addDialog();
  return listPage(context, {
    title: "Users",
    nouns: ["user", "users"],
    source: () => "users",
    fields: "name,tags",
    columns: [
      {
        title: "Name", sort: "name", kind: "name", text: (row) => row.name,
        node: (row) => link(to("users", row.name), name(row.name)),
      },
      { title: "Tags", text: (row) => row.tags.join(", "), node: (row) => tagBadges(row.tags) },
    ],
    key: (row) => row.name,
    actions: [button("Add a user", add, { kind: "primary", icon: icon("plus") })],
    empty: () => empty(
      "No users",
      "Nobody can log in, neither here nor with a client.",
      button("Add a user", add, { kind: "primary" }),
    ),
  });
}

export function tagBadges(tags) {
  if (tags.length === 0) return el("span", { class: "quiet" }, "none: clients only");
  return el("span", { class: "badges" }, tags.map((each) => badge(name(each))));
}

/** One box for each tag of the broker, `given` ticked. */
export function tagFields(given) {
  return TAGS.map(([tag, label, hint]) => tick(tag, label, { value: given.includes(tag), hint }));
}

/** Of what these boxes say, and tags that have none. */
export function tagsOf(values, others = []) {
  return [...TAGS.map(([tag]) => tag).filter((tag) => values[tag]), ...others];
}

function addDialog() {
  formDialog({
    title: "Add a user",
    note: "Without permissions on a virtual host a user can log in, and no more: give it some on its page.",
    fields: [
      text("name", "Name", { required: true }),
      text("password", "Password", { type: "password", required: true, autocomplete: "new-password" }),
      ...tagFields([]),
    ],
    action: "Add",
    async submit({ name: given, password, ...ticks }) {
      await ask("PUT", path`users/${given}`, { body: { password, tags: tagsOf(ticks) } });
      notice(`User ${name(given)} is there.`, "good");
      go(to("users", given));
    },
  });
}
