// Elements. Whatever comes from clients goes through here: children are nodes or text, and text is never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners (`on`), properties (`set`) and children. */
export function el(name, given = {}, ...children) {
  return filled(document.createElement(name), given, children);
}

/** The same, of SVG. */
export function svg(name, given = {}, ...children) {
  return filled(document.createElementNS(SVG, name), given, children);
}

function filled(element, { on = {}, set = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) attribute(element, name, value);
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  Object.assign(element, set);
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** False and null take it away, true sets it without a value. */
export function attribute(element, name, value) {
  if (value === false || value === null || value === undefined) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** Text that is changed only when it is another one: a selection in it stays. */
export function write(node, text) {
  const said = String(text);
  if (node.textContent !== said) node.textContent = said;
}

export function button(text, on, { kind = "", icon = null, ...more } = {}) {
  return el("button", { type: "button", class: `button ${kind}`.trim(), on: { click: on }, ...more }, icon, text);
}

let ids = 0;

/** An id that no other element has. */
export function newId(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}
