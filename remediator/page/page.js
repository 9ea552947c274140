// Keeps the page up to date. The page is complete without it. Everything that arrives becomes DOM
// nodes and text nodes one by one: no markup is ever parsed here.
"use strict";

(() => {
  const EVERY_MS = 4000;
  const PATIENCE_MS = 15000;
  const MOST_REGIONS = 40;
  const SVG = "http://www.w3.org/2000/svg";
  const TAGS = new Set(
    ("h2 h3 h4 p a ul ol li dl dt dd div span strong em small code pre time table caption thead tbody " +
      "tr th td section article figure figcaption wbr details summary svg g rect line path text").split(" "),
  );
  const ATTRIBUTES = new Set(
    ("href class title role id datetime scope colspan viewBox width height x y x1 x2 y1 y2 rx d " +
      "text-anchor tabindex rel").split(" "),
  );
  const pulse = document.getElementById("pulse");

  function build(tree, inside) {
    if (typeof tree === "string") return document.createTextNode(tree);
    const [tag, attributes, ...children] = tree;
    if (!TAGS.has(tag)) return document.createTextNode("");
    const space = tag === "svg" ? SVG : inside;
    const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
    dress(node, attributes);
    for (const child of children) node.append(build(child, space));
    return node;
  }

  function dress(node, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
      const known = ATTRIBUTES.has(name) || name.startsWith("aria-") || name.startsWith("data-");
      const leaves = name === "href" && !/^[/#?](?![/\\])/.test(value) && value !== "/";
      if (known && !leaves) node.setAttribute(name, value);
    }
  }

  async function ask(wanted) {
    const query = new URLSearchParams({ page: location.pathname + location.search });
    for (const name of wanted) query.append("region", name);
    const answer = await fetch("/api/live?" + query, {
      signal: AbortSignal.timeout(PATIENCE_MS),
      headers: { Accept: "application/json" },
    });
    if (!answer.ok) throw new Error("status " + answer.status);
    return answer.json();
  }

  function replace(name, tree) {
    const region = document.getElementById(name);
    if (!region) return;
    const focused = region.contains(document.activeElement) ? document.activeElement : null;
    const address = focused && focused.getAttribute("href");
    const fresh = build(tree, null);
    dress(region, tree[1]);
    region.replaceChildren(...fresh.childNodes);
    if (address) {
      const same = [...region.querySelectorAll("a")].find((a) => a.getAttribute("href") === address);
      if (same) same.focus({ preventScroll: true });
    }
  }

  async function refresh() {
    const shown = [...document.querySelectorAll("[data-digest]")];
    const { at, digests } = await ask([]);
    const names = new Set(shown.map((region) => region.id));
    const others = Object.keys(digests);
    if (others.length !== names.size || others.some((name) => !names.has(name))) {
      // Racks came or went: the frame itself changed, and only the server draws frames.
      location.reload();
      return;
    }
    const changed = shown.filter((region) => digests[region.id] !== region.dataset.digest);
    for (let from = 0; from < changed.length; from += MOST_REGIONS) {
      const wanted = changed.slice(from, from + MOST_REGIONS).map((region) => region.id);
      const { regions } = await ask(wanted);
      for (const [name, tree] of Object.entries(regions)) replace(name, tree);
    }
    say("Live, as of " + at + ".", false);
  }

  function say(text, late) {
    if (!pulse) return;
    pulse.textContent = text;
    pulse.className = late ? "late" : "";
  }

  async function go() {
    if (!document.hidden) {
      try {
        await refresh();
      } catch {
        say("Not reachable at the moment: what you see is from before.", true);
      }
    }
    setTimeout(go, EVERY_MS);
  }

  // Arrow keys walk the heat map; Tab leaves it. Without the script every node is a Tab stop.
  function walkable(map) {
    const nodes = () => [...map.querySelectorAll("a.n")];
    const rest = () => {
      const all = nodes();
      const here = all.includes(document.activeElement) ? document.activeElement : all[0];
      for (const node of all) node.tabIndex = node === here ? 0 : -1;
    };
    map.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "down", ArrowUp: "up" }[event.key];
      if (!step || !event.target.matches("a.n")) return;
      event.preventDefault();
      const all = nodes();
      const to = typeof step === "number" ? all[all.indexOf(event.target) + step] : beyond(all, event.target, step);
      if (!to) return;
      event.target.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    });
    rest();
    new MutationObserver(rest).observe(map, { childList: true, subtree: true });
  }

  function beyond(all, from, way) {
    const box = from.getBoundingClientRect();
    const sign = way === "down" ? 1 : -1;
    let best = null;
    let least = Infinity;
    for (const node of all) {
      const other = node.getBoundingClientRect();
      const rows = (other.top - box.top) * sign;
      if (rows < box.height / 2) continue;
      const distance = rows * 4 + Math.abs(other.left - box.left);
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  }

  document.querySelectorAll(".heat").forEach(walkable);
  if (document.querySelector("[data-digest]")) setTimeout(go, EVERY_MS);
})();
