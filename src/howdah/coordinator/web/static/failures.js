// What could not be saved, and what failed: the one to read first, open; earlier ones folded away.

import { $, h, words } from "./dom.js";
import { moment, plural } from "./format.js";
import { showLog } from "./log.js";
import { store } from "./store.js";

let shown = "";

function card(failure, level, tone) {
  const facts = [
    `generation ${failure.generation}`,
    failure.attempt ? `attempt ${failure.attempt}` : null,
    failure.time ? moment(failure.time) : null,
    failure.counted ? "counts against the restart budget" : "does not count against the restart budget",
  ].filter(Boolean);
  return h(
    "article",
    { class: "failure", "data-tone": tone },
    h(
      "div",
      { class: "failure-head" },
      h(level, level === "h2" ? { id: "failures-title" } : {}, failure.what),
      h("span", { class: "badge" }, failure.cause),
      failure.task
        ? h("button", { type: "button", class: "quiet to-log", onclick: () => showLog(failure.task, failure.attempt) }, `Log of ${failure.task}`)
        : null,
    ),
    h("p", { class: "facts-line" }, facts.join(" · ")),
    h("p", { class: "advice" }, ...words(failure.advice)),
    failure.tail?.length ? h("pre", { class: "code", tabindex: 0, "aria-label": "Last lines" }, failure.tail.join("\n")) : null,
  );
}

function show() {
  const failures = store.job.failures ?? [];
  const lost = store.job.outcome === "failed" || store.job.outcome === "timed-out";
  const calm = !lost && ["running", "finishing", "finished"].includes(store.job.phase);
  const key = JSON.stringify([failures, lost, calm]);
  if (key === shown) return;
  shown = key;
  const panel = $("failures");
  panel.hidden = !failures.length;
  if (!failures.length) return;
  if (calm) {
    // The job got over them: told, not shouted.
    const told = `${plural(failures.length, "failure", "failures")} so far; the job went on`;
    const fold = h("details", {}, h("summary", {}, h("h2", { id: "failures-title" }, told)));
    fold.append(...[...failures].reverse().map((failure) => card(failure, "h3", "warn")));
    panel.replaceChildren(fold);
    return;
  }
  // Other tasks may have failed as late, and the job got over it.
  const reason = store.job.reason ?? "";
  const first = failures.findLast((failure) => reason.startsWith(failure.what)) ?? failures.at(-1);
  const others = failures.filter((failure) => failure !== first).reverse();
  panel.replaceChildren(card(first, "h2", lost ? "bad" : "warn"));
  if (others.length) {
    const fold = h("details", {}, h("summary", {}, plural(others.length, "other failure", "other failures")));
    fold.append(...others.map((failure) => card(failure, "h3", "idle")));
    panel.append(fold);
  }
}

let shownUnsaved = "";

function showUnsaved() {
  const lines = store.job.unsaved ?? [];
  const key = JSON.stringify(lines);
  if (key === shownUnsaved) return;
  shownUnsaved = key;
  $("unsaved").hidden = !lines.length;
  if (!lines.length) return;
  $("unsaved").replaceChildren(
    h(
      "article",
      { class: "failure", "data-tone": "bad" },
      h("div", { class: "failure-head" }, h("h2", { id: "unsaved-title" }, "Not saved")),
      h("p", { class: "advice" }, ...words("Make the store writable, or name another (`checkpoint.store`, `outputs.store`), and run the job again.")),
      h("pre", { class: "code", tabindex: 0, "aria-label": "What could not be saved" }, lines.join("\n")),
    ),
  );
}

store.on("job", show);
store.on("job", showUnsaved);
