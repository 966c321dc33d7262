"use strict";
(() => {
  const twin = document.body.dataset.live;
  const main = document.querySelector("[data-curves]");
  let page = null, curves = null, panel = null, loss = null, metrics = [], wait = 1500;

  const opens = (place) => main.dataset.base + "/" + place;
  function marks() {
    const found = page.changes.map((c) => ({ kind: "line", step: c.step, text: "step " + c.step + ": weights change, " + c.what }));
    for (const s of page.spike_marks) if (s.loss !== null) found.push({ kind: "spike", step: s.step, value: s.loss, place: "step/" + s.step, text: "spike at step " + s.step + ": " + Number(s.loss.toPrecision(5)) });
    for (const c of page.checkpoints) found.push({ kind: "spike saved", step: Math.max(c.step - 1, 0), place: c.place, text: c.name + ", before step " + c.step });
    return found;
  }
  function draw() {
    if (!main || !page || !curves) return;
    if (!panel) panel = Lading.controls(document.querySelector("#section-loss .controls"), (again) => (again ? load().then(draw) : draw()));
    panel.offer(curves.clock);
    const { view, zoom } = panel, [first, ...rest] = curves.charts, common = { clock: curves.clock, steps: curves.steps };
    loss = loss || new Lading.Chart(main, { height: 300, opens, zooms: zoom });
    loss.draw(view, { ...common, marks: marks(), lines: [...first.lines.map((line) => ({ ...line, kind: "loss" })), ...curves.undone.map((u) => ({ ...u, kind: "undone" }))] });
    document.getElementById("section-metrics").hidden = !rest.length;
    const grid = document.getElementById("metrics");
    if (metrics.map((m) => m.name).join("\n") !== rest.map((m) => m.name).join("\n")) {
      metrics = rest.map((chart) => {
        const room = Lading.make("div", "one-chart"), inner = Lading.make("div"), legend = Lading.make("ul", "legend");
        chart.lines.forEach((line, n) => { const item = Lading.make("li", "", line.name); item.prepend(Lading.make("i", "key c" + (n % Lading.COLOURS))); legend.append(item); });
        room.append(Lading.make("h3", "", chart.name), inner, ...(chart.lines.length > 1 ? [legend] : []));
        return { name: chart.name, room, chart: new Lading.Chart(inner, { height: 170, opens, zooms: zoom }) };
      });
      grid.replaceChildren(...metrics.map((m) => m.room));
    }
    rest.forEach((chart, n) => metrics[n].chart.draw(view, { ...common, lines: chart.lines.map((line, k) => ({ ...line, kind: "line c" + (k % Lading.COLOURS) })) }));
    document.body.dataset.drawn = String(curves.steps);
  }
  async function load() {
    const view = panel ? panel.view : {}, range = view.first === undefined ? "" : "?first=" + view.first + "&last=" + view.last;
    const answer = await fetch(main.dataset.curves + range);
    if (answer.ok) curves = await answer.json();
  }

  async function verdict() {
    const room = document.getElementById("verdict");
    if (!room) return;
    const answer = await fetch(room.dataset.verdict);
    if (!answer.ok) { room.replaceChildren(); return; }
    const found = await answer.json();
    if (found.verifying !== undefined) { // it answers within a second, with how far it is
      const said = room.querySelector(".planned");
      if (said) said.textContent = "verifying … " + Math.floor(100 * found.verifying) + " %";
      setTimeout(verdict, 250);
      return;
    }
    const faults = found.findings.filter((f) => f.level === "fault");
    room.className = "verdict " + (found.holds ? "holds" : "broken");
    const said = found.holds ? Lading.spaced(found.steps) + " step" + (found.steps === 1 ? "" : "s") + " compared, sample for sample." : faults.length + " fault" + (faults.length === 1 ? "" : "s") + ".";
    room.replaceChildren(Lading.make("b", "", found.holds ? "The record holds. " : "The record does not hold. "), said);
    for (const f of found.findings.slice(0, 8)) room.append(Lading.make("div", f.level, f.message + (f.step === null ? "" : " (step " + f.step + ")")));
  }

  const whole = async () => (await fetch(location.pathname + "?whole")).text();
  async function refresh(text) {
    const later = "later" in document.body.dataset;
    delete document.body.dataset.later;
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const part of document.querySelectorAll("[id^=live-]")) {
      const other = fresh.getElementById(part.id);
      if (other && other.innerHTML !== part.innerHTML && (later || !part.contains(document.activeElement))) part.replaceWith(document.adoptNode(other));
    }
    const before = document.getElementById("section-loss");
    if (before && !main && fresh.querySelector("[data-curves]")) location.reload(); // its first loss
    document.dispatchEvent(new Event("lading-refreshed"));
  }

  async function poll() {
    const began = performance.now();
    let running = true;
    try {
      if ("later" in document.body.dataset) await refresh(await whole()); // what was left out, so that the rest was shown at once
      if (!document.hidden) {
        const version = page && page.version ? "?since=" + encodeURIComponent(page.version) : "";
        const answer = await fetch(twin + version);
        if (answer.ok) {
          const found = await answer.json(), before = page;
          if (!found.unchanged) {
            page = found;
            if (before !== null) await refresh(await whole());
            if (main) { await load(); draw(); }
            if (!Array.isArray(found) && (before === null || before.state !== found.state)) verdict();
          }
          running = Array.isArray(page) ? page.some((run) => run.state === "running") : page.state === "running";
        }
      }
    } catch (error) { running = false; /* the server is gone; ask again later */ }
    wait = Math.max(running ? 1500 : 8000, 4 * (performance.now() - began));
    setTimeout(poll, wait);
  }
  if (twin) requestAnimationFrame(() => setTimeout(poll)); // when the page is shown
  let late = 0;
  addEventListener("resize", () => { clearTimeout(late); late = setTimeout(draw, 150); });

  // A table that is wider than its room says so: its edge fades, and the keyboard may scroll it.
  const edges = (room) => { room.classList.toggle("more-right", room.scrollLeft + room.clientWidth < room.scrollWidth - 2); room.classList.toggle("more-left", room.scrollLeft > 2); };
  const allEdges = () => document.querySelectorAll(".scroll").forEach((room) => { edges(room); room.onscroll = () => edges(room); });
  allEdges();
  addEventListener("resize", allEdges);
  document.addEventListener("lading-refreshed", allEdges);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing) { if (event.key === "Escape") event.target.blur(); return; }
    const go = (selector) => { const link = document.querySelector(selector); if (link) { event.preventDefault(); link.click(); } };
    if (event.key === "/") { event.preventDefault(); document.getElementById("search").focus(); }
    else if (event.key === "ArrowLeft") go("a[rel=prev]");
    else if (event.key === "ArrowRight") go("a[rel=next]");
    else if (event.key === "u") go(document.querySelector("a.up") ? "a.up" : "a.home");
    else if (event.key === "g") go("a.home");
    else if (event.key === "Escape") document.querySelectorAll(".chart .menu, .chart .stretch").forEach((part) => { part.hidden = true; });
  });
})();
