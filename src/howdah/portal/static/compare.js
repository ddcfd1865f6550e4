// Plots of what several runs have measured and reported, laid over each other. Each run's own API is asked.

import { $ } from "./dom.js";
import { chip, firstTasks, Plots, secondsOfPoint, STEP } from "./plots.js";

const plots = new Plots("elapsed");
const hidden = new Set();

async function answer(address) {
  const response = await fetch(address, { signal: AbortSignal.timeout(60000) });
  if (!response.ok) throw new Error(response.statusText);
  return response.json();
}

/** Mean of what is known at each place. */
function mean(lines) {
  return lines[0].map((_, i) => {
    const known = lines.map((points) => points[i]).filter((value) => value !== null);
    return known.length ? known.reduce((a, b) => a + b) / known.length : null;
  });
}

/** What was measured of a run, as a line for each name: the mean of its tasks, from when its programs began. */
async function read(id, index) {
  const api = `jobs/${encodeURIComponent(id)}/api/v1`;
  try {
    const job = await answer(`${api}/job`);
    const begin = job.started ?? job.submitted;
    const tasks = firstTasks(job.tasks);
    if (!begin || !tasks.length) return new Map();
    const step = secondsOfPoint(begin, job.finished ?? Date.now() / 1000);
    const query = new URLSearchParams({ since: begin, step });
    tasks.forEach((task) => query.append("task", task));
    const page = await answer(`${api}/series?${query}`);
    const times = Array.from({ length: page.count }, (_, i) => i * page.step_s);
    const names = [...new Set(page.series.map((each) => each.name))];
    const pointsOf = (name) => page.series.filter((each) => each.name === name).map((each) => each.points);
    const means = new Map(names.map((name) => [name, mean(pointsOf(name))]));
    const steps = means.get(STEP);
    return new Map([...means].map(([name, points]) => [name, { label: id, index, times, points, steps }]));
  } catch {
    return new Map(); // it cannot be read, or its coordinator has just gone: the others are shown
  }
}

const ids = [...document.querySelectorAll("[data-run]")].map((head) => head.dataset.run);
const runs = await Promise.all(ids.map(read));
const names = new Set(runs.flatMap((run) => [...run.keys()]));
const common = [...names].filter((name) => runs.filter((run) => run.has(name)).length > 1);

function draw() {
  const shown = runs.filter((_, i) => !hidden.has(i));
  const metrics = new Map(common.map((name) => [name, shown.map((run) => run.get(name)).filter(Boolean)]));
  plots.draw(new Map([...metrics].filter(([, lines]) => lines.length)));
  $("chart-runs").replaceChildren(...ids.map((id, i) => chip(id, i, !hidden.has(i), () => toggle(i))));
}

function toggle(index) {
  if (!hidden.delete(index)) hidden.add(index);
  draw();
}

$("metrics").hidden = false;
draw();
addEventListener("howdah-theme", draw);
