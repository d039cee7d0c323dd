// Elements from values. Text goes in as text, always: names, reasons and ops were written by strangers.

/** Make an element. `given`: attributes; functions are listeners, false and null are left out. */
export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Put these in the place of what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

/** The same for what is filled again and again: what had the focus in it has it afterwards, and tables stay scrolled. */
export function refill(element, ...children) {
  const focused = element.contains(document.activeElement) ? sign(document.activeElement) : null;
  const scrolled = [...element.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  fill(element, ...children);
  [...element.querySelectorAll(".scroll")].forEach((one, place) => { one.scrollLeft = scrolled[place] ?? 0; });
  if (focused) [...element.querySelectorAll("a, button, summary, .scroll")].find((one) => sign(one) === focused)?.focus({ preventScroll: true });
}

const sign = (element) => [element.tagName, element.getAttribute("href"), element.getAttribute("aria-label"), element.dataset.act].join(" ");

/** Set an element's text if it is another one: nothing is laid out again for a number that stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make a bar that is filled to a share. Its width is set by script: the policy forbids styles in attributes. */
export function bar(share, label) {
  const filled = h("span");
  filled.style.width = `${Math.min(100, 100 * share)}%`;
  return h("span", { class: "bar", role: "img", "aria-label": label }, filled);
}

/** Make a table. `columns`: [heading, class]; `rows`: arrays of cells, each a value, an element or an array of them. */
export function table(caption, columns, rows, { rowClass = () => null, rowKey = () => null } = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([heading, kind]) => h("th", { scope: "col", class: kind }, heading)))),
      h("tbody", {}, rows.map((cells, index) =>
        h("tr", { class: rowClass(index), "data-row": rowKey(index) }, cells.map((cell, place) => h("td", { class: columns[place][1] }, cell ?? "–")))))));
}

/** Show a sentence for some seconds. */
let hiding = 0;
export function toast(text, kind = "good") {
  const place = document.getElementById("toast");
  fill(place, h("div", { class: `toast ${kind}` }, text));
  clearTimeout(hiding);
  hiding = setTimeout(() => fill(place), 6000);
}
