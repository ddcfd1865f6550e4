// Plots: one for each measurement and each reported value, one line a task.

import { $, h } from "./dom.js";
import { ask } from "./feed.js";
import { cores, mebibytes, number, percent, timeOfDay } from "./format.js";
import { chosen } from "./log.js";
import { store } from "./store.js";

const REFRESH_MS = 5000;
const POINTS = 400;
const TASKS_FIRST = 8; // plotted unless the reader says otherwise
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
const LIGHT = ["#0b6a62", "#c8641e", "#3f63b5", "#a23b72", "#6b7f1f", "#7a52a8", "#b08900", "#4b7f97"];
const DARK = ["#5cc8bb", "#f0955a", "#8fb0ff", "#e58bbb", "#b5c75b", "#bd9bea", "#e2c14f", "#8ec2da"];
const MEMORY = [[1024, " GiB"], [1, " MiB"]]; // scale from, unit
const KNOWN = {
  cpu: { title: "CPU", unit: "cores", show: cores, order: 10 },
  rss_mb: { title: "Memory", unit: "resident", show: mebibytes, order: 11, scales: MEMORY },
  gpu: { title: "GPU", unit: "utilisation", show: percent, order: 12, scales: [[0.01, " %"]] },
  gpu_memory_mb: { title: "GPU memory", unit: "", show: mebibytes, order: 13, scales: MEMORY },
};

let plotted = null; // task names
let grid = null; // {start, step_s, count, lines: Map name -> Map task -> points}
let busy = false;
let stale = false;
const charts = new Map();

const dark = () => document.documentElement.hasAttribute("data-dark");
const colourOf = (task) => (dark() ? DARK : LIGHT)[plotted.indexOf(task) % LIGHT.length];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function describe(name) {
  if (KNOWN[name]) return KNOWN[name];
  const title = name.replace(/^value:/, "");
  return { title, unit: "reported", show: number, order: title === "step" ? 2 : 1 };
}

// -- data ----------------------------------------------------------------------------------------------

function stretch() {
  const end = store.now();
  const begin = store.job.submitted ?? end;
  const wanted = Number($("chart-window").value);
  const start = wanted ? Math.max(begin, end - wanted) : begin;
  const step = STEPS.find((each) => (end - start) / each <= POINTS) ?? Math.ceil((end - start) / POINTS);
  return { start, step };
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

// -- drawing ---------------------------------------------------------------------------------------------

function options(chart, tasks, width) {
  const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: `11px ${css("--sans")}` };
  return {
    width,
    height: 160,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_, low, high) => bounds(low, high) } },
    axes: [
      { ...axis, size: 26, values: (_, ticks) => ticks.map((tick) => timeOfDay(tick).slice(0, ticks[1] - ticks[0] < 60 ? 8 : 5)), space: 70 },
      { ...axis, size: 62, values: (_, ticks) => labels(chart.about, ticks), space: 34 },
    ],
    series: [{}, ...tasks.map((task) => ({ stroke: colourOf(task), width: 1.5, spanGaps: true, points: { show: isSparse } }))],
    hooks: { setCursor: [(plot) => tip(chart, plot, tasks)] },
  };
}

/** Labels of an axis: all in one unit, with as many digits as tell neighbours apart. */
function labels(about, ticks) {
  const known = ticks.filter((tick) => tick !== null);
  const most = Math.max(...known.map(Math.abs));
  const [scale, unit] = (about.scales ?? []).find(([from]) => most >= from) ?? about.scales?.at(-1) ?? [1, ""];
  const step = known.length > 1 ? (known[1] - known[0]) / scale : most / scale || 1;
  const digits = Math.min(6, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return ticks.map((tick) => {
    if (tick === null) return "";
    const value = tick / scale;
    return (Math.abs(value) >= 1e6 ? value.toExponential(1) : value.toFixed(digits)) + unit;
  });
}

/** Zero is shown where it is near, and a flat line stays in the middle. */
function bounds(low, high) {
  if (low === null || high === null) return [0, 1];
  const near = low >= 0 && low < high * 0.6 ? 0 : low;
  const room = (high - near || Math.abs(high) || 1) * 0.08;
  return [near === 0 ? 0 : near - room, high + room];
}

// A line needs two values.
function isSparse(plot, at) {
  return plot.data[at].filter((value) => value !== null && value !== undefined).length < 3;
}

function tip(chart, plot, tasks) {
  const at = plot.cursor.idx;
  chart.tip.hidden = at === null || at === undefined || plot.cursor.left < 0;
  if (chart.tip.hidden) return;
  const lines = tasks
    .map((task, i) => [task, plot.data[i + 1][at]])
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([task, value]) => {
      const dot = h("i");
      dot.style.background = colourOf(task);
      return h("div", {}, dot, task, h("b", {}, chart.about.show(value)));
    });
  chart.tip.replaceChildren(h("small", {}, timeOfDay(plot.data[0][at])), ...lines);
  const right = plot.cursor.left > plot.over.clientWidth / 2;
  chart.tip.style.left = right ? "" : `${plot.cursor.left + 90}px`;
  chart.tip.style.right = right ? `${plot.over.clientWidth - plot.cursor.left + 40}px` : "";
  chart.tip.style.top = "3.2rem";
}

function card(name) {
  const about = describe(name);
  const plot = h("div", { class: "plot" });
  const heading = h("h3", {}, about.title, h("small", {}, about.unit));
  const note = h("div", { class: "tip", hidden: true });
  return { about, box: h("div", { class: "chart", "data-chart": name }, heading, plot, note), place: plot, tip: note, heading, plot: null, key: "" };
}

function draw() {
  const names = [...grid.lines.keys()].sort((a, b) => describe(a).order - describe(b).order || a.localeCompare(b));
  $("chart-empty").hidden = names.length > 0;
  for (const [name, chart] of charts) {
    if (names.includes(name)) continue;
    chart.plot?.destroy();
    chart.box.remove();
    charts.delete(name);
  }
  names.forEach((name, i) => {
    if (!charts.has(name)) charts.set(name, card(name));
    const chart = charts.get(name);
    if ($("charts").children[i] !== chart.box) $("charts").insertBefore(chart.box, $("charts").children[i] ?? null);
    plotInto(chart, grid.lines.get(name));
  });
}

function plotInto(chart, line) {
  const tasks = plotted.filter((task) => line.has(task));
  const times = Array.from({ length: grid.count }, (_, i) => grid.start + i * grid.step_s);
  const data = [times, ...tasks.map((task) => Array.from({ length: grid.count }, (_, i) => line.get(task)[i] ?? null))];
  const width = chart.place.clientWidth;
  const key = [tasks.join(), dark()].join();
  chart.box.setAttribute("role", "figure");
  chart.box.setAttribute("aria-label", `${chart.about.title}: ${tasks.map((task, i) => `${task} ${chart.about.show(data[i + 1].findLast((v) => v !== null) ?? null)}`).join(", ")}`);
  if (chart.plot && chart.key === key) {
    if (chart.plot.width !== width) chart.plot.setSize({ width, height: 160 });
    chart.plot.setData(data);
    return;
  }
  chart.plot?.destroy();
  chart.key = key;
  chart.plot = new uPlot(options(chart, tasks, width), data, chart.place);
}

// -- which tasks ---------------------------------------------------------------------------------------------

function chips() {
  const names = [...store.tasks.keys()];
  // All where they are few; else those plotted and the one whose log is shown.
  const offered = names.length <= 12 ? names : [...new Set([...plotted, chosen().task].filter(Boolean))];
  $("chart-tasks").replaceChildren(
    ...offered.map((task) => {
      const on = plotted.includes(task);
      const dot = h("i", { class: "dot" });
      if (on) dot.style.setProperty("--chip", colourOf(task));
      return h("button", { type: "button", class: "chip", "aria-pressed": String(on), onclick: () => toggle(task) }, dot, ` ${task}`);
    }),
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
    const tasks = [...store.tasks.values()];
    const tracked = tasks.filter((task) => task.tracking !== "sidecar");
    plotted = (tracked.length ? tracked : tasks).slice(0, TASKS_FIRST).map((task) => task.task);
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
addEventListener("howdah-theme", () => {
  if (!plotted) return;
  chips();
  if (grid) draw();
});
new ResizeObserver(() => grid && draw()).observe($("charts"));
