// A form that starts a job is sent once, however long the start takes.
"use strict";
addEventListener("submit", (event) => {
  if (!event.target.elements.namedItem("key")) return;
  const button = event.submitter;
  setTimeout(() => { button.disabled = true; });
  addEventListener("pageshow", () => { button.disabled = false; }); // somebody went back to the page
});
