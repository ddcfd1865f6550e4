// The head of the page: where the job is, its numbers, its links, what time went to, the stop button.

import { $, h, setText, words } from "./dom.js";
import { post } from "./feed.js";
import { duration, moment, number, phase } from "./format.js";
import { store } from "./store.js";

const STAGES = {
  wait: "Waiting for containers",
  prepare: "Preparing",
  join: "Finding peers",
  run: "Running",
  restart: "After a failure",
  finish: "Finishing",
};

let said = "";

function head() {
  const job = store.job;
  const { word, tone, busy } = phase(job);
  const badge = $("phase");
  setText(badge, word);
  badge.dataset.tone = tone;
  badge.toggleAttribute("data-busy", busy);
  setText($("title"), job.name);
  const sign = { good: "✓ ", bad: "✗ " }[tone] ?? "";
  document.title = `${sign}${job.name} · ${word}`;
  if (said !== word) {
    if (said) $("spoken").append(h("p", {}, `The job is now: ${word}`));
    said = word;
  }
  const reason = $("reason");
  reason.hidden = !job.reason || (job.outcome === "succeeded" && !job.advice);
  // A failure's advice stands with the failure.
  const advice = job.advice && !(job.failures ?? []).some((f) => f.advice === job.advice) ? job.advice : "";
  reason.replaceChildren(...words(sentence(job.reason)), advice ? h("span", { class: "advice" }, ...words(advice)) : "");
  $("stop").hidden = store.over;
  if ($("rerun")) $("rerun").hidden = !store.over; // the portal of the job's user has it
  setText($("stop"), job.phase === "finishing" ? "Stop at once" : "Stop");
  links(job.links ?? []);
}

/** With a capital, unless it begins with a task's name. */
const sentence = (text) => (/^\S+:\d/.test(text) ? text : text.slice(0, 1).toUpperCase() + text.slice(1));

let shownLinks = "";

function links(list) {
  const key = JSON.stringify(list);
  if (key === shownLinks) return;
  shownLinks = key;
  $("links").replaceChildren(
    ...list.map((link) => h("a", { class: "button", href: link.href, target: "_blank", rel: "noopener" }, link.name, " ↗")),
  );
}

const FACTS = [
  ["Elapsed", () => duration(store.now() - (store.job.submitted ?? store.now()))],
  ["Tasks", tasksFact],
  ["Step", stepFact],
  ["Generation", () => number(store.job.generation)],
  ["Restarts", () => number(store.job.restarts)],
  ["Coordinator", () => (store.job.incarnation > 1 ? `life ${store.job.incarnation}` : "")],
  ["Checkpoint", () => store.job.checkpoint ?? ""],
  ["Exit code", () => (store.job.phase === "finished" && store.job.exit_code !== null ? String(store.job.exit_code) : "")],
];

function tasksFact() {
  const tasks = [...store.tasks.values()];
  const count = (state) => tasks.filter((task) => task.state === state).length;
  const running = count("running");
  const done = count("succeeded");
  if (store.over) return `${number(done)} of ${number(tasks.length)} succeeded`;
  return `${number(running)} of ${number(tasks.length)} running`;
}

function stepFact() {
  const steps = [...store.tasks.values()].map((task) => task.step).filter((step) => step !== null && step !== undefined);
  if (!steps.length) return "";
  const last = furthestBack();
  if (last?.total) {
    const left = last.left_s === null || last.left_s === undefined ? "" : `, ${duration(last.left_s)} left`;
    return `${number(last.step)} of ${number(last.total)}${left}`;
  }
  const least = Math.min(...steps);
  const most = Math.max(...steps);
  return least === most ? number(most) : `${number(least)} – ${number(most)}`;
}

/** The running task that has made the least part of its steps, of those that say how many there are. */
function furthestBack() {
  const known = [...store.tasks.values()].filter((task) => task.total && task.step !== null && task.step !== undefined);
  return known.sort((a, b) => a.step / a.total - b.step / b.total)[0];
}

function bar() {
  const last = furthestBack();
  $("steps").hidden = !last || store.over;
  if (last) $("steps").value = Math.min(last.step / last.total, 1);
}

const cells = FACTS.map(([name, value]) => {
  const shown = h("dd");
  const pair = h("div", {}, h("dt", {}, name), shown);
  $("facts").append(pair);
  return { pair, shown, value };
});

function facts() {
  if (!store.job) return;
  for (const { pair, shown, value } of cells) {
    const text = value();
    pair.hidden = text === "";
    setText(shown, text);
  }
  bar();
  timeline();
}

function timeline() {
  const spans = store.job.timeline ?? [];
  $("timeline").hidden = !spans.length;
  if (!spans.length) return;
  const now = store.now();
  const bar = $("timeline-bar");
  while (bar.children.length > spans.length) bar.lastChild.remove();
  const sums = new Map();
  spans.forEach((span, i) => {
    const long = Math.max(0, (span.end ?? now) - span.start);
    sums.set(span.stage, (sums.get(span.stage) ?? 0) + long);
    const part = bar.children[i] ?? bar.appendChild(h("i"));
    part.dataset.stage = span.stage;
    part.style.flexGrow = String(Math.max(long * 1000, 1)); // a sum below 1 would not fill the bar
    part.title = `${STAGES[span.stage] ?? span.stage} ${duration(long)}${span.generation ? `, generation ${span.generation}` : ""}, from ${moment(span.start)}`;
  });
  const legend = $("timeline-legend");
  const shown = Object.keys(STAGES).filter((stage) => sums.has(stage));
  if (legend.dataset.stages !== shown.join()) {
    legend.dataset.stages = shown.join();
    legend.replaceChildren(
      ...shown.map((stage) => h("li", { "data-stage": stage }, h("i"), h("span", {}, STAGES[stage]), h("b"))),
    );
  }
  shown.forEach((stage, i) => setText(legend.children[i].lastChild, duration(sums.get(stage))));
}

// -- stopping ------------------------------------------------------------------------------------

const dialog = $("stop-dialog");

$("stop").addEventListener("click", () => {
  $("stop-problem").hidden = true;
  $("stop-firm").checked = store.job.phase === "finishing";
  dialog.showModal();
});

$("stop-confirm").addEventListener("click", async () => {
  const button = $("stop-confirm");
  button.disabled = true;
  try {
    await post("stop", { reason: $("stop-reason").value, firm: $("stop-firm").checked });
    dialog.close();
  } catch (problem) {
    const shown = $("stop-problem");
    shown.hidden = false;
    setText(shown, `The job was not stopped: ${problem.message}`);
  } finally {
    button.disabled = false;
  }
});

store.on("job", () => {
  head();
  facts();
});
store.on("tasks", facts);
setInterval(facts, 1000);

