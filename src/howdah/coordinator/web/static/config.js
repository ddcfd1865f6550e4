// The resolved job file.

import { $ } from "./dom.js";
import { ask } from "./feed.js";
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

store.on("job", () => {
  if (!asked) show();
  asked = true;
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
