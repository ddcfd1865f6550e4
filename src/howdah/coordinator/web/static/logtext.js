// Log text as lines of the page: escape sequences out, progress bars as their last state, bounded.

import { h } from "./dom.js";

const LINES_MAX = 5000;
const LINE_MAX = 10000; // characters; a longer line is cut where it is shown
// Colours and cursor moves of terminals, titles (OSC), other control characters but tab.
const ESCAPES = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;

/** What a terminal would show of a line that went back to its beginning. */
export function settled(line) {
  const clean = line.replace(/\r+$/, "");
  const back = clean.lastIndexOf("\r");
  return (back >= 0 ? clean.slice(back + 1) : clean).replace(ESCAPES, "").slice(0, LINE_MAX);
}

export class LogText {
  #box;
  #open = null; // the last line, while it has no end
  #rest = ""; // what it holds so far, as sent

  constructor(box) {
    this.#box = box;
  }

  get empty() {
    return this.#box.childElementCount === 0;
  }

  clear() {
    this.#box.replaceChildren();
    this.#open = null;
    this.#rest = "";
  }

  /** Add text at the end; `wanted` is made visible in it. */
  add(text, wanted = "") {
    if (!text) return;
    const lines = (this.#rest + text).split("\n");
    const rest = lines.pop();
    const fresh = document.createDocumentFragment();
    lines.slice(-LINES_MAX).forEach((line, i) => {
      if (i === 0 && this.#open) this.#open.textContent = settled(line);
      else fresh.append(element(line, wanted));
      if (i === 0) this.#open = null;
    });
    // What a carriage return has overwritten is gone for good: a progress bar stays small.
    const back = rest.replace(/\r+$/, "").lastIndexOf("\r");
    this.#rest = (back >= 0 ? rest.slice(back + 1) : rest).slice(-LINE_MAX * 2);
    if (this.#rest) {
      if (this.#open && !lines.length) this.#open.textContent = settled(this.#rest);
      else this.#open = fresh.appendChild(element(this.#rest, wanted));
    }
    this.#box.append(fresh);
    for (let more = this.#box.childElementCount - LINES_MAX; more > 0; more--) this.#box.firstChild.remove();
  }

  /** Add whole lines at the beginning. */
  addBefore(text) {
    const lines = text.replace(/\n$/, "").split("\n");
    this.#box.prepend(...lines.map((line) => element(line, "")));
  }

  /** A remark between the lines. */
  mark(words) {
    this.#open = null;
    this.#rest = "";
    this.#box.append(h("div", { class: "mark" }, `— ${words} —`));
  }
}

function element(line, wanted) {
  const shown = settled(line);
  if (!wanted) return h("div", {}, shown);
  const parts = [];
  const lower = shown.toLowerCase();
  const needle = wanted.toLowerCase();
  let at = 0;
  for (let next = lower.indexOf(needle); next >= 0 && parts.length < 100; next = lower.indexOf(needle, at)) {
    parts.push(shown.slice(at, next), h("mark", {}, shown.slice(next, next + needle.length)));
    at = next + needle.length;
  }
  return h("div", {}, ...parts, shown.slice(at));
}
