// What the job wasted and what to change: told by the portal, which knows jobs from their directories.

import { $, h, words } from "./dom.js";
import { ask } from "./feed.js";
import { store } from "./store.js";

const AGAIN_MS = 30_000;
const TONES = ["idle", "idle", "warn", "bad", "bad"];
const WORDS = ["", "low", "moderate", "severe", "critical"];
const portal = "portal" in document.documentElement.dataset;

let asked = null;

async function show() {
  let found;
  try {
    found = await ask("advice");
  } catch {
    return; // what is shown stays
  }
  $("advice").hidden = !found.length;
  $("findings").replaceChildren(
    ...found.map((each) =>
      h(
        "li",
        { "data-tone": TONES[each.severity] },
        h("p", {}, h("span", { class: "badge" }, WORDS[each.severity]), " ", ...words(each.text)),
        h("p", { class: "advice" }, "→ ", ...words(each.change)),
      ),
    ),
  );
}

/** At once, while it runs now and then, and once more when it is over. */
function look() {
  if (!portal || asked === store.over) return;
  asked = store.over;
  show();
}

store.on("job", look);
if (portal) setInterval(() => !store.over && !document.hidden && show(), AGAIN_MS);
