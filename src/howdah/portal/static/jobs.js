// The list of jobs: filters as one types, stays up to date, goes by keys. Without it all works by links.
"use strict";
(() => {
  const TYPING_MS = 180;
  const AGAIN_MS = 4000;
  const form = document.getElementById("filters");
  const text = form.elements.namedItem("text");
  let round = 0;
  let timer = null;

  const wanted = () => {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value.trim()) query.append(name, value.trim());
    return query.size ? `?${query}` : "./";
  };

  /** Put the jobs of that address into the page; how it was filtered stays as the form has it. */
  const show = async (address) => {
    round += 1;
    const mine = round;
    clearTimeout(timer);
    try {
      const response = await fetch(address, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(15000) });
      if (mine !== round) return false;
      if (!response.ok) {
        location.reload(); // says what is wrong
        return false;
      }
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("found");
      if (mine !== round || !fresh) return false;
      const chosen = document.querySelector("[data-chosen] .name a")?.href;
      const picked = new Set([...document.querySelectorAll(".pick input:checked")].map((box) => box.value));
      const focused = document.activeElement?.closest("#found") ? document.activeElement : null;
      document.getElementById("found").replaceWith(document.adoptNode(fresh));
      for (const link of document.querySelectorAll("#found .name > a:first-child")) {
        if (link.href === chosen) link.closest("tr").toggleAttribute("data-chosen", true);
      }
      for (const box of document.querySelectorAll(".pick input")) box.checked = picked.has(box.value);
      if (focused) {
        const same = (other) => (focused.href ? other.href === focused.href : other.value === focused.value);
        [...document.querySelectorAll("#found a, #found .pick input")].find(same)?.focus();
      }
      return true;
    } catch {
      return false; // the next look may find it there again
    } finally {
      if (mine === round) later();
    }
  };

  const later = () => {
    clearTimeout(timer);
    if (document.hidden) return;
    // What the reader is about to press stays where it is.
    const held = () => document.querySelector("#found details[open]");
    timer = setTimeout(() => (held() ? later() : show(location.href)), AGAIN_MS);
  };

  let typed = null;
  const filter = async () => {
    const address = wanted();
    if (await show(address)) history.replaceState(null, "", address);
  };
  form.addEventListener("input", () => {
    clearTimeout(typed);
    round += 1;
    // One or two letters stand in nearly every job: Enter looks for them.
    if ([1, 2].includes(text.value.trim().length)) return;
    typed = setTimeout(filter, TYPING_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typed);
    filter();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : show(location.href)));

  const step = (by) => {
    const rows = [...document.querySelectorAll("#found tbody tr")];
    const at = rows.findIndex((row) => row.hasAttribute("data-chosen"));
    const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
    if (!next) return;
    rows[at]?.removeAttribute("data-chosen");
    next.setAttribute("data-chosen", "");
    next.querySelector(".name a").focus();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      text.focus();
      text.select();
    } else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
  });
  later();
})();
