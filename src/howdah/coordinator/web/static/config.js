// The resolved job file.

import { $, h } from "./dom.js";
import { ask } from "./feed.js";
import { plural } from "./format.js";
import { store } from "./store.js";

let asked = false;

async function show() {
  try {
    const job = await ask($("config-all").checked ? "config" : "config?brief=1");
    $("config-text").textContent = JSON.stringify(job, null, 2);
  } catch (problem) {
    $("config-text").textContent = problem.message;
  }
}

/** What differs from the run of that name before: only the portal knows other jobs. */
async function since() {
  let found;
  try {
    found = await ask("before");
  } catch {
    return;
  }
  if (!found.job_id) return;
  $("before").hidden = false;
  const id = encodeURIComponent(found.job_id);
  const runs = new URLSearchParams([["job", found.job_id], ["job", store.job.job_id]]);
  const count = found.differences.length;
  $("before-title").replaceChildren(
    count ? `${plural(count, "key differs", "keys differ")} from the run before, ` : "The same as of the run before, ",
    h("a", { href: `../${id}/` }, found.job_id),
    " · ",
    h("a", { href: `../../compare?${runs}` }, "compare the two"),
  );
  $("before-table").hidden = !count;
  $("before-rows").replaceChildren(
    ...found.differences.map(({ key, values }) =>
      h("tr", {}, h("th", { scope: "row" }, key), ...values.map((value) => h("td", {}, value || "as by default"))),
    ),
  );
}

store.on("job", () => {
  if (asked) return;
  asked = true;
  show();
  if ("portal" in document.documentElement.dataset) since();
});

$("config-all").addEventListener("change", show);
$("config-copy").addEventListener("click", async () => {
  const button = $("config-copy");
  try {
    await navigator.clipboard.writeText($("config-text").textContent);
    button.textContent = "Copied";
  } catch {
    // Clipboards are for secure pages only: select, and let the reader press the keys.
    getSelection().selectAllChildren($("config-text"));
    button.textContent = "Selected: press Ctrl-C";
  }
  setTimeout(() => (button.textContent = "Copy"), 2500);
});
