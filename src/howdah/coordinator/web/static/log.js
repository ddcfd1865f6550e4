// One task's log: the end of it, growing; earlier lines and a search on demand.

import { $, h, setOptions, setText } from "./dom.js";
import { ask, feed, post } from "./feed.js";
import { bytes, moment, number, plural } from "./format.js";
import { LogText } from "./logtext.js";
import { store } from "./store.js";

const TAIL = 64 * 1024;
const view = $("log-view");
const text = new LogText($("log-lines"));

let task = null;
let attempt = null; // of the lines shown
let seen = 0; // the newest attempt whose lines came
let pinned = false; // the reader chose this attempt
let first = 0; // where the lines shown begin
let searching = 0;

export const chosen = () => ({ task, attempt });

/** Show a task's log; attempt null means the newest one, and the next when it comes. */
export function showLog(name, wanted = null, { scroll = true } = {}) {
  // The log may be ahead of the table, or the other way round.
  const newest = Math.max(store.tasks.get(name)?.attempt ?? 0, name === task ? seen : 0);
  if (name !== task) seen = 0;
  task = name;
  attempt = wanted ?? null;
  pinned = attempt !== null && attempt !== newest;
  $("log-find").value = "";
  begin();
  store.tell("chosen");
  if (scroll) $("log").scrollIntoView({ behavior: "smooth", block: "start" });
}

function begin() {
  searching += 1;
  text.clear();
  first = 0;
  follow(true);
  $("log-earlier").hidden = true;
  feed.log = { task, attempt, offset: -TAIL, pinned };
  feed.restart();
  details();
}

function follow(on) {
  $("log-follow").checked = on;
  if (on) view.scrollTop = view.scrollHeight;
}

feed.addEventListener("log", ({ detail: change }) => {
  if (change.task !== task || $("log-find").value) return;
  if (attempt !== null && attempt !== change.attempt && !text.empty) {
    text.mark(`Attempt ${change.attempt}`);
    first = change.offset;
  }
  if (text.empty) {
    first = change.offset;
    // The tail begins somewhere inside a line.
    if (first > 0) {
      const cut = change.text.indexOf("\n") + 1;
      first += new TextEncoder().encode(change.text.slice(0, cut)).length;
      change.text = change.text.slice(cut);
    }
    $("log-earlier").hidden = first === 0;
  }
  if (change.skipped) text.mark(`${bytes(change.skipped)} came too fast to show; they are in the download`);
  attempt = change.attempt;
  seen = Math.max(seen, attempt);
  feed.log = { task, attempt, offset: change.next_offset, pinned };
  text.add(change.text);
  details();
  if ($("log-follow").checked) view.scrollTop = view.scrollHeight;
});

// -- earlier lines -----------------------------------------------------------------------------------

$("log-earlier-button").addEventListener("click", async () => {
  const start = Math.max(0, first - TAIL);
  const round = searching;
  try {
    const page = await ask(`logs/${task}?attempt=${attempt}&offset=${start}&limit=${first - start}`);
    if (round !== searching) return;
    const cut = page.offset > 0 ? page.text.indexOf("\n") + 1 : 0;
    first = page.offset + new TextEncoder().encode(page.text.slice(0, cut)).length;
    const height = view.scrollHeight;
    text.addBefore(page.text.slice(cut));
    view.scrollTop += view.scrollHeight - height;
    $("log-earlier").hidden = first === 0;
  } catch (problem) {
    text.mark(problem.message);
  }
});

// -- search ------------------------------------------------------------------------------------------

let findTimer = null;
$("log-find").addEventListener("input", () => {
  clearTimeout(findTimer);
  findTimer = setTimeout(() => ($("log-find").value ? find($("log-find").value) : begin()), 250);
});

async function find(wanted) {
  searching += 1;
  const round = searching;
  follow(false);
  $("log-earlier").hidden = true;
  text.clear();
  note("Looking…");
  let offset = 0;
  let count = 0;
  try {
    for (;;) {
      const query = new URLSearchParams({ grep: wanted, offset });
      if (attempt !== null) query.set("attempt", attempt);
      const found = await ask(`logs/${task}?${query}`);
      if (round !== searching) return;
      count += found.matches.length;
      text.add(found.matches.map((match) => `${match.line}\n`).join(""), wanted);
      offset = found.next_offset;
      if (found.end || count >= 2000) break;
    }
    note("");
    text.mark(count ? `${plural(count, "line holds", "lines hold")} “${wanted}”` : `No line holds “${wanted}”`);
  } catch (problem) {
    note(problem.message);
  }
}

// -- what is around the lines ----------------------------------------------------------------------------

function note(words) {
  $("log-empty").hidden = !words;
  setText($("log-empty"), words);
}

function details() {
  const now = store.tasks.get(task);
  if (!now) return;
  setOptions($("log-task"), [...store.tasks.keys()].map((name) => [name, name]));
  $("log-task").value = task;
  const count = Math.max(now.attempt, seen, 1);
  const attempts = Array.from({ length: count }, (_, i) => [String(i + 1), `Attempt ${i + 1}`]).reverse();
  setOptions($("log-attempt"), attempts);
  $("log-attempt").value = String(attempt ?? count);
  $("log-download").href = `api/v1/logs/${task}/raw?attempt=${attempt ?? count}`;
  $("log-stacks").hidden = now.state !== "running";
  const facts = [
    ["State", now.state],
    ["Started", now.started ? moment(now.started) : null],
    ["Node", now.node && now.node !== now.host ? now.node : null],
    ["Ports", now.ports?.join(", ")],
    ["Process", now.pids?.join(", ")],
    ["Container", now.container],
    ["Exit", now.signal ?? (now.exit_code === null ? null : number(now.exit_code))],
    ["Attempts spent", now.counted ? number(now.counted) : null],
    ["Log", now.log_size ? bytes(now.log_size) : null],
  ].filter(([, value]) => value);
  const key = JSON.stringify(facts);
  const list = $("log-facts");
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }
  if (!$("log-find").value) note(text.empty ? `${task} has not written anything yet.` : "");
}

$("log-task").addEventListener("change", () => showLog($("log-task").value, null, { scroll: false }));
$("log-attempt").addEventListener("change", () => showLog(task, Number($("log-attempt").value), { scroll: false }));
$("log-wrap").addEventListener("change", (event) => view.classList.toggle("wrap", event.target.checked));
// Sideways scrolling is no fun on a phone.
if (matchMedia("(max-width: 46rem)").matches) $("log-wrap").click();
$("log-follow").addEventListener("change", (event) => follow(event.target.checked));
let lastTop = 0;
view.addEventListener("scroll", () => {
  const atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
  // Scrolling up lets go; only the reader scrolls up.
  if (atEnd) $("log-follow").checked = true;
  else if (view.scrollTop < lastTop - 2) $("log-follow").checked = false;
  lastTop = view.scrollTop;
});

$("log-stacks").addEventListener("click", async () => {
  setText($("stacks-title"), `Stacks of ${task}`);
  setText($("stacks-text"), "Taking them…");
  $("stacks-dialog").showModal();
  try {
    setText($("stacks-text"), (await post(`stacks/${task}`)).text);
  } catch (problem) {
    setText($("stacks-text"), problem.message);
  }
});

/** What to show first: the task that failed, else the chief, else the first. */
function choose() {
  const failures = store.job.failures ?? [];
  const cause = failures.find((failure) => failure.generation === failures.at(-1).generation && failure.task);
  if (store.over && store.job.outcome !== "succeeded" && cause && store.tasks.has(cause.task)) {
    showLog(cause.task, cause.attempt, { scroll: false });
    return;
  }
  const tasks = [...store.tasks.values()];
  const best = tasks.find((each) => each.rank === 0) ?? tasks.find((each) => each.tracking === "tracked") ?? tasks[0];
  showLog(best.task, null, { scroll: false });
}

store.on("tasks", ({ touched }) => {
  if (task === null && store.tasks.size) choose();
  else if (touched.has(task)) details();
});
