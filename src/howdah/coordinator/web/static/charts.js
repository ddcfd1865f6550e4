// What is plotted on a job's page: chosen tasks over a stretch of time, asked for bit by bit.

import { $ } from "./dom.js";
import { ask } from "./feed.js";
import { chosen } from "./log.js";
import { chip, firstTasks, Plots, secondsOfPoint, STEP } from "./plots.js";
import { store } from "./store.js";

const REFRESH_MS = 5000;

const plots = new Plots("clock");
let plotted = null; // task names
let grid = null; // {start, step_s, count, lines: Map name -> Map task -> points}
let busy = false;
let stale = false;

// -- data ----------------------------------------------------------------------------------------------

function stretch() {
  const end = store.now();
  const begin = store.job.submitted ?? end;
  const wanted = Number($("chart-window").value);
  const start = wanted ? Math.max(begin, end - wanted) : begin;
  return { start, step: secondsOfPoint(start, end) };
}

/** Ask for what is new since the grid ends; for all of it if the grid does not fit any more. */
async function refresh() {
  if (busy || !plotted?.length) {
    stale = true;
    return;
  }
  busy = true;
  stale = false;
  try {
    const { start, step } = stretch();
    const fits = grid && grid.step_s === step && grid.start <= start + step && grid.tasks === plotted.join();
    const since = fits ? Math.max(start, grid.start + (grid.count - 3) * step) : start;
    const query = new URLSearchParams({ since, step });
    plotted.forEach((task) => query.append("task", task));
    merge(await ask(`series?${query}`), fits, start);
    draw();
  } catch {
    // The coordinator is away, which the top of the page says; the next round asks again.
  } finally {
    busy = false;
    if (stale) refresh();
  }
}

function merge(page, fits, start) {
  if (!fits) grid = { start: page.start, step_s: page.step_s, count: 0, lines: new Map(), tasks: plotted.join() };
  const shift = Math.round((page.start - grid.start) / grid.step_s);
  grid.count = Math.max(grid.count, shift + page.count);
  for (const { task, name, points } of page.series) {
    if (!grid.lines.has(name)) grid.lines.set(name, new Map());
    const line = grid.lines.get(name);
    if (!line.has(task)) line.set(task, []);
    points.forEach((point, i) => (line.get(task)[shift + i] = point));
  }
  const old = Math.floor((start - grid.start) / grid.step_s);
  if (old > 0) {
    grid.start += old * grid.step_s;
    grid.count -= old;
    for (const line of grid.lines.values()) for (const points of line.values()) points.splice(0, old);
  }
}

function draw() {
  const times = Array.from({ length: grid.count }, (_, i) => grid.start + i * grid.step_s);
  const filled = (points) => points && times.map((_, i) => points[i] ?? null);
  const stepsOf = new Map([...(grid.lines.get(STEP) ?? [])].map(([task, points]) => [task, filled(points)]));
  const metrics = new Map();
  for (const [name, line] of grid.lines) {
    const tasks = plotted.filter((task) => line.has(task));
    const lines = tasks.map((task) => ({
      label: task,
      index: plotted.indexOf(task),
      times,
      points: filled(line.get(task)),
      steps: stepsOf.get(task),
    }));
    metrics.set(name, lines);
  }
  plots.draw(metrics);
}

// -- which tasks ---------------------------------------------------------------------------------------------

function chips() {
  const names = [...store.tasks.keys()];
  // All where they are few; else those plotted and the one whose log is shown.
  const offered = names.length <= 12 ? names : [...new Set([...plotted, chosen().task].filter(Boolean))];
  $("chart-tasks").replaceChildren(
    ...offered.map((task) => chip(task, plotted.indexOf(task), plotted.includes(task), () => toggle(task))),
  );
}

function toggle(task) {
  plotted = plotted.includes(task) ? plotted.filter((each) => each !== task) : [...plotted, task];
  grid = null;
  chips();
  if (plotted.length) refresh();
}

store.on("tasks", ({ full }) => {
  if (plotted === null && store.tasks.size) {
    plotted = firstTasks([...store.tasks.values()]);
    chips();
    refresh();
  } else if (full) {
    chips();
  }
});
store.on("chosen", () => plotted && chips());

let wasOver = false;
let visible = true;
new IntersectionObserver(([entry]) => {
  visible = entry.isIntersecting;
  if (visible) refresh();
}, { rootMargin: "200px" }).observe($("metrics"));
setInterval(() => {
  if (document.hidden || !visible || (store.over && wasOver)) return;
  wasOver = store.over;
  refresh();
}, REFRESH_MS);
$("chart-window").addEventListener("change", () => {
  grid = null;
  refresh();
});
addEventListener("howdah-theme", () => plotted && chips());
