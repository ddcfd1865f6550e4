// A form that starts a job is sent once, however long the start takes.
"use strict";
const starting = (form) => (form.elements.namedItem("key") ? form.querySelectorAll("button") : []);
addEventListener("submit", (event) => {
  setTimeout(() => { for (const button of starting(event.target)) button.disabled = true; });
});
addEventListener("pageshow", () => { // somebody went back to the page
  for (const form of document.forms) for (const button of starting(form)) button.disabled = false;
});
