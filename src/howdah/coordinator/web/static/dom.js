// Small helpers over the document.

export const $ = (id) => document.getElementById(id);

/** An element: h("p", {class: "x", onclick: f}, "text", other). */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Text with `code` between back-ticks, as the texts of Howdah have it. */
export function words(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

/** Set text only where it differs: a thousand untouched cells cost nothing. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

/** Options of a select, changed only where they differ; keeps the choice. */
export function setOptions(select, options) {
  const same =
    select.options.length === options.length &&
    options.every(([value, text], i) => select.options[i].value === value && select.options[i].text === text);
  if (same) return;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

/** Call at most once in `ms`, the last time included. */
export function calm(ms, work) {
  let timer = null;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      work();
    }, ms);
  };
}
