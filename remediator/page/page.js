// Refresh the page: fetch it again and replace the parts that changed. The page works without it.
"use strict";

(() => {
  const EVERY_MS = 5000;
  const TIMEOUT_MS = 15000;
  const last = new Map();
  const pulse = document.getElementById("pulse");

  function replace(shown, fresh) {
    const opened = [...shown.querySelectorAll("details[open]")].map((one) => one.id);
    const focused = shown.contains(document.activeElement) && document.activeElement.getAttribute("href");
    shown.replaceChildren(...fresh.childNodes);
    for (const one of shown.querySelectorAll("details")) one.open = opened.includes(one.id);
    if (focused) {
      const same = [...shown.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused);
      if (same) same.focus({ preventScroll: true });
    }
  }

  function busy(part) {
    return part.contains(document.activeElement) && document.activeElement.matches("input, select");
  }

  async function refresh() {
    const answer = await fetch(location.pathname + location.search, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!answer.ok) throw new Error("status " + answer.status);
    const text = await answer.text();
    // The same document as at a reload; scripts in it never run.
    const parts = new DOMParser().parseFromString(text, "text/html").querySelectorAll("[data-live]");
    for (const fresh of parts) {
      const shown = document.getElementById(fresh.id);
      if (shown && !busy(shown) && last.get(fresh.id) !== fresh.innerHTML) {
        last.set(fresh.id, fresh.innerHTML);
        replace(shown, fresh);
      }
    }
  }

  async function go() {
    if (!document.hidden) {
      try {
        await refresh();
        pulse.textContent = "Live.";
      } catch {
        pulse.textContent = "Not reachable: this is the last known state.";
      }
    }
    setTimeout(go, EVERY_MS);
  }

  setTimeout(go, EVERY_MS);
})();
