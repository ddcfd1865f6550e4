// Runs before the page is drawn, so that a dark page never flashes light.
"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try { return localStorage.getItem("howdah-theme") || "system"; } catch { return "system"; }
  };
  let choice = stored();
  const apply = () => {
    root.toggleAttribute("data-dark", choice === "dark" || (choice === "system" && dark.matches));
    dispatchEvent(new Event("howdah-theme"));
  };
  dark.addEventListener("change", apply);
  apply();

  const words = { system: ["◐", "as the system's"], light: ["☀", "light"], dark: ["☾", "dark"] };
  const order = ["system", "light", "dark"];
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      const [sign, word] = words[choice];
      button.textContent = sign;
      button.title = `Colours: ${word}`;
      button.setAttribute("aria-label", button.title);
    };
    button.addEventListener("click", () => {
      choice = order[(order.indexOf(choice) + 1) % order.length];
      try { localStorage.setItem("howdah-theme", choice); } catch { /* kept for this page only */ }
      apply();
      show();
    });
    show();
  });
})();
