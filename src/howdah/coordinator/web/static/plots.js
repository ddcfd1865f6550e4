// Plots: one for each measurement and each reported value, with a line for each task or run.

import { $, h } from "./dom.js";
import { cores, duration, mebibytes, number, percent, timeOfDay } from "./format.js";

const POINTS = 400;
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
const HEIGHT = 160;
const NEAR = 30; // pixels from the pointer to a value that is told

/** The series that is no plot of its own: the steps that the others were made at. */
export const STEP = "step";

/** The tasks that are plotted unless the reader says otherwise. */
export function firstTasks(tasks) {
  const tracked = tasks.filter((task) => task.tracking !== "sidecar");
  return (tracked.length ? tracked : tasks).slice(0, 8).map((task) => task.task);
}

/** Seconds that a point stands for. */
export function secondsOfPoint(start, end) {
  return STEPS.find((each) => (end - start) / each <= POINTS) ?? Math.ceil((end - start) / POINTS);
}

const dark = () => document.documentElement.hasAttribute("data-dark");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (index) => (dark() ? DARK : LIGHT)[index % LIGHT.length];
const isKnown = (value) => value !== null && value !== undefined;

/** A button that shows or hides a line. */
export function chip(label, index, on, toggle) {
  const dot = h("i", { class: "dot" });
  if (on) dot.style.setProperty("--chip", colour(index));
  return h("button", { type: "button", class: "chip", "aria-pressed": String(on), onclick: toggle }, dot, ` ${label}`);
}

function describe(name) {
  if (KNOWN[name]) return KNOWN[name];
  const title = name.replace(/^value:/, "");
  return { title, unit: "reported", show: number, order: 1 };
}

const AXES = {
  clock: {
    tip: timeOfDay,
    options: { values: (_, ticks) => ticks.map((tick) => timeOfDay(tick).slice(0, ticks[1] - ticks[0] < 60 ? 8 : 5)) },
  },
  elapsed: {
    tip: (seconds) => `after ${duration(seconds)}`,
    options: { values: (_, ticks) => ticks.map(duration), incrs: [...STEPS, 7200, 21600, 43200, 86400, 604800] },
  },
  step: {
    tip: (step) => `step ${number(step)}`,
    options: { values: (_, ticks) => ticks.map(number) },
  },
};

// -- data ----------------------------------------------------------------------------------------------

/** A line over its steps. What was made again after a restart counts as made the second time. */
function overSteps({ points, steps }) {
  const xs = [];
  const ys = [];
  let step = null;
  points.forEach((value, i) => {
    step = steps[i] ?? step;
    if (step === null || !isKnown(value)) return;
    while (xs.length && xs.at(-1) >= step) {
      xs.pop();
      ys.pop();
    }
    xs.push(step);
    ys.push(value);
  });
  return [xs, ys];
}

/** Means that forget: of the one before, `weight` is kept. */
function smoothed(points, weight) {
  let sum = 0;
  let share = 0;
  return points.map((value) => {
    if (!isKnown(value)) return null;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

// -- drawing ---------------------------------------------------------------------------------------------

/** Labels of an axis: all in one unit, with as many digits as tell neighbours apart. */
function labels(about, ticks) {
  const known = ticks.filter(isKnown);
  const most = Math.max(...known.map(Math.abs));
  const [scale, unit] = (about.scales ?? []).find(([from]) => most >= from) ?? about.scales?.at(-1) ?? [1, ""];
  const step = known.length > 1 ? (known[1] - known[0]) / scale : most / scale || 1;
  const digits = Math.min(6, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return ticks.map((tick) => {
    if (!isKnown(tick)) return "";
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

function logarithmicBounds(low, high) {
  return low === null || high === null ? [1, 10] : uPlot.rangeLog(low, high, 10, false);
}

// A line needs two values.
const isSparse = (plot, at) => plot.data[at].filter(isKnown).length < 3;

function options(chart, lines, axisName, logarithmic, width) {
  const style = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: `11px ${css("--sans")}` };
  const axis = AXES[axisName];
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, hover: { prox: NEAR } },
    scales: {
      x: { time: axisName === "clock" },
      y: logarithmic ? { distr: 3, range: (_, low, high) => logarithmicBounds(low, high) } : { range: (_, low, high) => bounds(low, high) },
    },
    axes: [
      { ...style, ...axis.options, size: 26, space: 70 },
      {
        ...style,
        size: 62,
        space: 34,
        values: (_, ticks) => (logarithmic ? ticks.map((tick) => (isKnown(tick) ? chart.about.show(tick) : "")) : labels(chart.about, ticks)),
      },
    ],
    series: [{}, ...lines.map((line) => ({ stroke: colour(line.index), width: 1.5, spanGaps: true, points: { show: isSparse } }))],
    hooks: { setCursor: [(plot) => tip(chart, plot, lines, axis)] },
  };
}

function tip(chart, plot, lines, axis) {
  const at = plot.cursor.idx;
  chart.tip.hidden = !isKnown(at) || plot.cursor.left < 0;
  if (chart.tip.hidden) return;
  const told = lines
    .map((line, i) => [line, plot.data[i + 1][plot.cursor.idxs[i + 1] ?? -1]])
    .filter(([, value]) => isKnown(value))
    .map(([line, value]) => {
      const dot = h("i");
      dot.style.background = colour(line.index);
      return h("div", {}, dot, line.label, h("b", {}, chart.about.show(value)));
    });
  chart.tip.replaceChildren(h("small", {}, axis.tip(plot.data[0][at])), ...told);
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
  const box = h("div", { class: "chart", "data-chart": name, role: "figure" }, heading, plot, note);
  return { about, box, place: plot, tip: note, plot: null, key: "" };
}

/** All plots of a page, below the choices of templates/chart-choices.html. */
export class Plots {
  #time;
  #nothing = $("chart-empty").textContent;
  #metrics = null;
  #charts = new Map();

  /** `time`: the axis where the reader has not chosen steps, "clock" or "elapsed". */
  constructor(time) {
    this.#time = time;
    const again = () => this.#metrics && this.draw(this.#metrics);
    for (const id of ["chart-axis", "chart-smoothing", "chart-log"]) $(id).addEventListener("change", again);
    addEventListener("howdah-theme", again);
    new ResizeObserver(again).observe($("charts"));
  }

  /**
   * Show these, and nothing else. `metrics` has lines by name: {label, index of its colour, times, points, and steps
   * if it has any}, all of one length; lines of one clock share `times`.
   */
  draw(metrics) {
    this.#metrics = metrics;
    const bySteps = $("chart-axis").value === "step";
    const shown = new Map();
    for (const [name, lines] of metrics) {
      const own = bySteps ? lines.filter((line) => line.steps) : lines;
      if (own.length && name !== STEP) shown.set(name, own);
    }
    const names = [...shown.keys()].sort((a, b) => describe(a).order - describe(b).order || a.localeCompare(b));
    $("chart-empty").hidden = names.length > 0;
    $("chart-empty").textContent = bySteps && metrics.size ? "No steps were reported." : this.#nothing;
    for (const [name, chart] of this.#charts) {
      if (shown.has(name)) continue;
      chart.plot?.destroy();
      chart.box.remove();
      this.#charts.delete(name);
    }
    names.forEach((name, i) => {
      if (!this.#charts.has(name)) this.#charts.set(name, card(name));
      const chart = this.#charts.get(name);
      if ($("charts").children[i] !== chart.box) $("charts").insertBefore(chart.box, $("charts").children[i] ?? null);
      this.#plot(chart, shown.get(name), bySteps);
    });
  }

  #plot(chart, lines, bySteps) {
    const weight = Number($("chart-smoothing").value);
    let tables = lines.map((line) => (bySteps ? overSteps(line) : [line.times, line.points]));
    if (weight) tables = tables.map(([xs, ys]) => [xs, smoothed(ys, weight)]);
    const logarithmic = $("chart-log").checked && tables.some(([, ys]) => ys.some((value) => value > 0));
    if (logarithmic) tables = tables.map(([xs, ys]) => [xs, ys.map((value) => (value > 0 ? value : null))]);
    const isOneClock = tables.every(([xs]) => xs === tables[0][0]);
    const data = isOneClock ? [tables[0][0], ...tables.map(([, ys]) => ys)] : uPlot.join(tables);
    const last = ([, ys]) => chart.about.show(ys.findLast(isKnown) ?? null);
    chart.box.setAttribute("aria-label", `${chart.about.title}: ${lines.map((line, i) => `${line.label} ${last(tables[i])}`).join(", ")}`);
    const width = chart.place.clientWidth;
    const axis = bySteps ? "step" : this.#time;
    const key = [dark(), axis, logarithmic, ...lines.map((line) => `${line.index} ${line.label}`)].join();
    if (chart.plot && chart.key === key) {
      if (chart.plot.width !== width) chart.plot.setSize({ width, height: HEIGHT });
      chart.plot.setData(data);
      return;
    }
    chart.plot?.destroy();
    chart.key = key;
    chart.plot = new uPlot(options(chart, lines, axis, logarithmic, width), data, chart.place);
  }
}
