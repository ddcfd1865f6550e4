// The job's story, newest first.

import { $, h, words } from "./dom.js";
import { moment, timeOfDay } from "./format.js";
import { store } from "./store.js";

const PAGE = 200;
const TONES = { info: "idle", warning: "warn", error: "bad" };
const list = $("event-list");
let limit = PAGE;
let waiting = [];

function line(record) {
  return h(
    "li",
    { "data-level": record.level, "data-tone": TONES[record.level] },
    h("time", { datetime: new Date(record.time * 1000).toISOString(), title: moment(record.time) }, timeOfDay(record.time)),
    h(
      "p",
      {},
      record.level === "info" ? null : h("span", { class: "level" }, record.level === "error" ? "Error" : "Warning"),
      ...words(record.text),
      h("small", {}, record.kind),
    ),
  );
}

function flush() {
  const fresh = waiting.slice(-limit).reverse();
  waiting = [];
  list.prepend(...fresh.map(line));
  while (list.children.length > limit) list.lastChild.remove();
  $("event-more").hidden = store.records.length <= list.children.length;
}

store.on("record", (record) => {
  if (!waiting.length) requestAnimationFrame(flush);
  waiting.push(record);
});

$("event-more-button").addEventListener("click", () => {
  limit += PAGE;
  const shown = list.children.length;
  const end = store.records.length - shown;
  list.append(...store.records.slice(Math.max(0, end - PAGE), end).reverse().map(line));
  $("event-more").hidden = store.records.length <= list.children.length;
});

$("events-serious").addEventListener("change", (event) => list.classList.toggle("serious", event.target.checked));
