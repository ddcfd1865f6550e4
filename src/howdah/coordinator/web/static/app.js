// The job page: starts its parts, then follows the job.

import { $ } from "./dom.js";
import { feed } from "./feed.js";
import { store } from "./store.js";
import "./summary.js";
import "./failures.js";
import "./advice.js";
import "./tasks.js";
import "./log.js";
import "./charts.js";
import "./events.js";
import "./config.js";

const WORDS = {
  wait: "Connecting",
  live: "Live",
  poll: "Polling",
  lost: "Not connected",
  out: "Signed out",
  over: "Ended",
};

function show(state) {
  const sign = $("feed");
  const over = store.over && state !== "out";
  sign.dataset.feed = over ? "over" : state === "out" ? "lost" : state;
  sign.lastElementChild.textContent = over ? "Ended" : WORDS[state];
  sign.title =
    state === "out"
      ? document.documentElement.hasAttribute("data-portal")
        ? "Sign in again in the list of jobs"
        : "Run “howdah status” for a new link"
      : state === "lost"
        ? "The coordinator does not answer; it is asked again"
        : state === "poll"
          ? "Something between here and the coordinator holds streams back; it is asked every 1.5 seconds"
          : "";
}

feed.addEventListener("state", (event) => show(event.detail));
store.on("job", () => show(feed.state));
feed.start();
