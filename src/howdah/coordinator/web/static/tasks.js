// The task table. Rows are kept and only cells that differ are touched, so that a thousand tasks that
// beat every second cost little; no more rows than a person reads are in the page at once.

import { $, calm, h, setAttribute, setText } from "./dom.js";
import { cores, duration, mebibytes, number, percent, plural, taskState } from "./format.js";
import { chosen, showLog } from "./log.js";
import { store } from "./store.js";

const PAGE = 100;
const MAP_FROM = 25; // tasks; fewer are seen at a glance in the table

const shownState = (task) => taskState(task, store.atFault(task));
const since = (task) => (task.since ? store.now() - task.since : null);
const quiet = (task) => (task.state === "running" && task.progress_at ? store.now() - task.progress_at : null);

/** key, heading, class, text of a task, and what it is sorted by. `label` is shown on narrow screens. */
const COLUMNS = [
  { key: "task", head: "Task", css: "name", sort: null },
  { key: "state", head: "State", css: "state", text: (t) => shownState(t).word, sort: (t) => t.state },
  { key: "rank", head: "Rank", css: "num dim", label: "rank", text: (t) => number(t.rank), sort: (t) => t.rank ?? 1e9 },
  { key: "attempt", head: "Attempt", css: "num", label: "attempt", text: (t) => (t.attempt ? number(t.attempt) : ""), sort: (t) => -t.attempt },
  { key: "host", head: "Host", css: "host dim", text: (t) => t.host ?? "", sort: (t) => t.host ?? "" },
  { key: "since", head: "For", css: "num dim age", label: "for", text: (t) => (t.since ? duration(since(t)) : ""), sort: (t) => since(t) ?? 0, ticks: true, optional: true },
  { key: "cpu", head: "CPU", css: "num", label: "CPU", text: (t) => cores(t.cpu), sort: (t) => -(t.cpu ?? -1), optional: true },
  { key: "rss_mb", head: "Memory", css: "num", label: "memory", text: (t) => mebibytes(t.rss_mb), sort: (t) => -(t.rss_mb ?? -1), optional: true },
  { key: "gpu", head: "GPU", css: "num", label: "GPU", text: (t) => percent(t.gpu), sort: (t) => -(t.gpu ?? -1), optional: true },
  { key: "gpu_memory_mb", head: "GPU mem.", css: "num", label: "GPU memory", text: (t) => mebibytes(t.gpu_memory_mb), sort: (t) => -(t.gpu_memory_mb ?? -1), optional: true },
  { key: "step", head: "Step", css: "num", label: "step", text: (t) => number(t.step), sort: (t) => t.step ?? 1e18, optional: true },
  { key: "progress_at", head: "Progress", css: "num progress", label: "progress", text: (t) => (quiet(t) === null ? "" : `${duration(quiet(t))} ago`), sort: (t) => -(quiet(t) ?? -1), ticks: true, optional: true },
  { key: "last_line", head: "Last line", css: "line", text: (t) => t.last_line ?? "", sort: null },
];

const rows = new Map(); // task name -> {row, cells}
const marks = new Map(); // task name -> square of the map
let limit = PAGE;
let state = null;
let sorting = null;
let descending = false;
let order = [];

// -- the head ----------------------------------------------------------------------------------------

// Roles are spelled out: on narrow screens rows are laid out as cards, and a table that is no table
// to the style sheet would be none to a screen reader either.
const heads = COLUMNS.map((column) => {
  const cell = h("th", { scope: "col", class: column.css, role: "columnheader" });
  if (column.sort) cell.append(h("button", { type: "button", onclick: () => sortBy(column) }, column.head));
  else cell.textContent = column.head;
  return cell;
});
$("task-head").append(...heads);

function sortBy(column) {
  if (sorting !== column) [sorting, descending] = [column, false];
  else if (!descending) descending = true;
  else sorting = null;
  COLUMNS.forEach((each, i) => {
    setAttribute(heads[i], "aria-sort", each === sorting ? (descending ? "descending" : "ascending") : null);
  });
  layout();
}

// -- rows --------------------------------------------------------------------------------------------

function makeRow(task) {
  const row = h("tr", { "data-task": task.task, role: "row" });
  const cells = COLUMNS.map((column) => {
    if (column.key === "task") {
      const cell = h("th", { scope: "row", class: column.css, role: "rowheader" });
      cell.append(h("button", { type: "button" }, task.task));
      return cell;
    }
    return h("td", { class: column.css, "data-label": column.label, role: "cell" });
  });
  row.append(...cells);
  return { row, cells };
}

function fill(task, { row, cells }, ticking = false) {
  COLUMNS.forEach((column, i) => {
    if (!column.text || (ticking && !column.ticks)) return;
    const text = column.text(task);
    setText(cells[i], text);
    if (column.key === "last_line") setAttribute(cells[i], "title", text || null);
  });
  if (!ticking) setAttribute(cells[1], "data-tone", shownState(task).tone);
  setAttribute(row, "aria-current", task.task === chosen().task ? "true" : null);
}

$("task-rows").addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (row && !getSelection().toString()) showLog(row.dataset.task, null, { scroll: event.target.closest("button") !== null });
});

// -- which rows, in which order ------------------------------------------------------------------------

function wanted() {
  const text = $("task-filter").value.trim().toLowerCase();
  let tasks = [...store.tasks.values()];
  if (state) tasks = tasks.filter((task) => task.state === state);
  if (text) {
    tasks = tasks.filter((task) =>
      [task.task, task.host, task.node, task.container, task.last_line].some((each) => each?.toLowerCase().includes(text)),
    );
  }
  if (sorting) {
    const keys = new Map(tasks.map((task) => [task, sorting.sort(task)]));
    const sign = descending ? -1 : 1;
    tasks.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
    });
  }
  return tasks;
}

function layout() {
  const tasks = wanted();
  const visible = tasks.slice(0, limit);
  const names = visible.map((task) => task.task);
  if (names.join() !== order.join()) {
    order = names;
    const keep = new Set(names);
    for (const [name, { row }] of rows) {
      if (keep.has(name)) continue;
      row.remove();
      rows.delete(name);
    }
    let before = null;
    for (const task of visible) {
      let entry = rows.get(task.task);
      if (!entry) {
        entry = makeRow(task);
        rows.set(task.task, entry);
        fill(task, entry);
      }
      const place = before ? before.nextSibling : $("task-rows").firstChild;
      if (place !== entry.row) $("task-rows").insertBefore(entry.row, place);
      before = entry.row;
    }
  }
  $("task-empty").hidden = tasks.length > 0;
  $("task-more").hidden = tasks.length <= limit;
  setText($("task-more-button"), `Show ${plural(Math.min(PAGE, tasks.length - limit), "more task", "more tasks")} of ${number(tasks.length)}`);
  columns();
  chips();
}

/** Columns that nothing is known for are left out, and those of what goes on where nothing does. */
function columns() {
  const tasks = [...store.tasks.values()];
  COLUMNS.forEach((column, i) => {
    if (!column.optional) return;
    const known = !(column.ticks && store.over) && tasks.some((task) => task[column.key] !== null && task[column.key] !== undefined && (column.key !== "progress_at" || task.state === "running"));
    heads[i].hidden = !known;
    for (const { cells } of rows.values()) cells[i].hidden = !known;
  });
}

function chips() {
  const counts = new Map();
  for (const task of store.tasks.values()) counts.set(task.state, (counts.get(task.state) ?? 0) + 1);
  if (state && !counts.has(state)) counts.set(state, 0);
  const box = $("task-states");
  const key = JSON.stringify([[...counts], state]);
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const focused = document.activeElement?.dataset?.state;
  box.replaceChildren(
    ...[...counts].map(([name, count]) =>
      h(
        "button",
        {
          type: "button",
          class: "chip",
          "data-state": name,
          "aria-pressed": String(state === name),
          onclick: () => {
            state = state === name ? null : name;
            limit = PAGE;
            layout();
          },
        },
        `${name} ${number(count)}`,
      ),
    ),
  );
  if (focused) box.querySelector(`[data-state="${focused}"]`)?.focus();
}

// -- the map: every task a square, where there are too many to read ----------------------------------------

function drawMap() {
  const map = $("task-map");
  map.hidden = store.tasks.size < MAP_FROM;
  if (map.hidden || marks.size === store.tasks.size) return;
  marks.clear();
  const roles = new Map();
  for (const task of store.tasks.values()) {
    if (!roles.has(task.role)) roles.set(task.role, h("div"));
    const mark = h("i", { "data-task": task.task });
    marks.set(task.task, mark);
    roles.get(task.role).append(mark);
    colour(task);
  }
  // The table says the same in words.
  map.setAttribute("aria-hidden", "true");
  map.replaceChildren(...[...roles].flatMap(([role, squares]) => [h("span", {}, `${role} ${number(squares.children.length)}`), squares]));
}

function colour(task) {
  const mark = marks.get(task.task);
  if (!mark) return;
  const { word, tone } = shownState(task);
  setAttribute(mark, "data-tone", tone);
  setAttribute(mark, "title", `${task.task} ${word}`);
  setAttribute(mark, "data-chosen", task.task === chosen().task ? "" : null);
}

$("task-map").addEventListener("click", (event) => {
  const name = event.target.dataset.task;
  if (name) showLog(name, null, { scroll: true });
});

// -- what happens ------------------------------------------------------------------------------------------

const layoutSoon = calm(400, layout);

store.on("tasks", ({ touched, full }) => {
  if (full) {
    rows.forEach(({ row }) => row.remove());
    rows.clear();
    marks.clear();
    order = [];
  }
  for (const name of touched) {
    const task = store.tasks.get(name);
    const entry = rows.get(name);
    if (task && entry) fill(task, entry);
    if (task) colour(task);
  }
  drawMap();
  if (full) layout();
  else layoutSoon();
});

// A failure changes how a task that ended is shown, and the job's end which columns there are.
store.on("job", () => {
  rows.forEach((entry, name) => store.tasks.has(name) && fill(store.tasks.get(name), entry));
  layoutSoon();
});
store.on("chosen", () => {
  rows.forEach(({ row }, name) => setAttribute(row, "aria-current", name === chosen().task ? "true" : null));
  marks.forEach((mark, name) => setAttribute(mark, "data-chosen", name === chosen().task ? "" : null));
});
setInterval(() => {
  if (!store.over) rows.forEach((entry, name) => store.tasks.has(name) && fill(store.tasks.get(name), entry, true));
}, 1000);

$("task-filter").addEventListener("input", () => {
  limit = PAGE;
  layout();
});
$("task-more-button").addEventListener("click", () => {
  limit += PAGE;
  layout();
});
