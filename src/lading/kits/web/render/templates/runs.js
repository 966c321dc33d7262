"use strict";
// The list of runs: sorted, filtered, and any number of them drawn above each other. The address keeps what is chosen.
(() => {
  const chosen = new Set(new URLSearchParams(location.hash.slice(1)).getAll("run"));
  const known = new Map(); // curves, by run
  let order = { key: "wrote", down: true }, panel = null, chart = null;
  const at = (id) => document.getElementById(id);
  const rows = () => [...document.querySelectorAll("#runs tbody tr")];

  function value(row, key) {
    const place = [...document.querySelectorAll("#runs thead th")].findIndex((th) => th.dataset.key === key), cell = row.cells[place];
    const text = cell.dataset.value ?? cell.textContent.trim(), number = Number(text.replace(/\u202f/g, ""));
    return text === "" || text === "–" ? null : Number.isNaN(number) || key === "run" || key === "digest" ? text : number;
  }
  function sort() {
    const sign = order.down ? -1 : 1;
    const sorted = rows().map((row) => [row, value(row, order.key)]).sort(([, a], [, b]) => (a === null ? 1 : b === null ? -1 : sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }))));
    document.querySelector("#runs tbody").append(...sorted.map(([row]) => row));
    for (const th of document.querySelectorAll("#runs th[data-key]")) {
      if (th.dataset.key === order.key) th.setAttribute("aria-sort", order.down ? "descending" : "ascending"); else th.removeAttribute("aria-sort");
    }
  }
  function filter() {
    const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of rows()) { row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word)); left += !row.hidden; }
    at("no-run").hidden = left > 0;
  }
  function mark() {
    const colours = [...chosen];
    for (const row of rows()) {
      const place = colours.indexOf(row.dataset.run);
      row.querySelector(".tick input").checked = place >= 0;
      row.className = place >= 0 ? "here c" + (place % Lading.COLOURS) : "";
    }
    const visible = rows().filter((row) => !row.hidden);
    at("every").checked = visible.length > 0 && visible.every((row) => chosen.has(row.dataset.run));
    at("chosen").textContent = chosen.size ? chosen.size + " selected" : "select runs to draw them above each other";
    at("clear").hidden = !chosen.size;
    at("pair").hidden = chosen.size !== 2;
    if (chosen.size === 2) at("pair").href = "/compare?" + new URLSearchParams({ left: colours[0], right: colours[1] });
    const hash = new URLSearchParams(colours.map((run) => ["run", run])).toString();
    history.replaceState(null, "", hash ? "#" + hash : location.pathname);
  }
  async function load() {
    const asked = [...chosen].filter((run) => !known.has(run));
    const addresses = new Map(rows().map((row) => [row.dataset.run, row.dataset.href]));
    for (let first = 0; first < asked.length; first += 4) await Promise.all(asked.slice(first, first + 4).map(async (run) => {
      const answer = addresses.has(run) ? await fetch(addresses.get(run) + "/curves.json") : null;
      if (answer && answer.ok) known.set(run, await answer.json()); else chosen.delete(run);
    }));
  }
  function draw() {
    const runs = [...chosen].filter((run) => known.has(run)), metric = at("metric");
    at("overlay").hidden = !runs.length;
    if (!runs.length) return;
    const lines = new Map(runs.map((run) => [run, new Map(known.get(run).charts.flatMap((c) => c.lines).map((line) => [line.name, line]))]));
    const names = [...new Set([...lines.values()].flatMap((mine) => [...mine.keys()]))], before = metric.value || "loss";
    metric.replaceChildren(...names.map((name) => { const option = Lading.make("option", "", name); option.value = name; return option; }));
    metric.value = names.includes(before) ? before : "loss";
    panel = panel || Lading.controls(document.querySelector("#overlay .controls"), draw);
    chart = chart || new Lading.Chart(at("overlay-chart"), { height: 320, zooms: panel.zoom });
    const clocks = runs.map((run) => known.get(run).clock), shared = {};
    for (const unit of ["samples", "tokens", "seconds"]) shared[unit] = clocks.every((clock) => clock[unit]) || null;
    panel.offer(shared);
    // Each run has a clock of its own: what is drawn along the axis is its samples, tokens or seconds, not its steps.
    const { view } = panel, by = view.by === "step" ? null : view.by;
    const moved = (line, clock) => {
      const axis = (steps) => steps.map((step) => Lading.between(clock.step, clock[by], step));
      return by ? { ...line, step: axis(line.step), ...(line.mean_step ? { mean_step: axis(line.mean_step) } : {}) } : line;
    };
    const found = runs.map((run, n) => { const line = lines.get(run).get(metric.value); return line ? { ...moved(line, known.get(run).clock), name: run, kind: "line c" + (n % Lading.COLOURS) } : null; }).filter(Boolean);
    const end = Math.max(1, ...found.map((line) => (line.step.at(-1) ?? 0) + 1));
    chart.draw({ ...view, label: by || "step" }, { lines: found, steps: end, clock: null });
    at("overlay-legend").replaceChildren(...found.map((line) => { const item = Lading.make("li", "", line.name); item.prepend(Lading.make("i", "key " + line.kind)); return item; }));
    document.body.dataset.overlaid = String(found.length);
  }
  async function changed() { mark(); await load(); mark(); draw(); }

  document.addEventListener("click", (event) => {
    const header = event.target.closest("#runs th[data-key]");
    if (!header) return;
    const { key } = header.dataset;
    order = { key, down: order.key === key ? !order.down : !["run", "state", "digest", "loss"].includes(key) };
    sort();
  });
  document.addEventListener("change", (event) => {
    const row = event.target.closest("#runs tbody tr");
    if (row) { if (event.target.checked) chosen.add(row.dataset.run); else chosen.delete(row.dataset.run); }
    else if (event.target.id === "every") for (const one of rows()) { if (!one.hidden) { if (event.target.checked) chosen.add(one.dataset.run); else chosen.delete(one.dataset.run); } }
    else if (event.target.id === "metric") { draw(); return; }
    else return;
    changed();
  });
  at("filter").addEventListener("input", () => { filter(); mark(); });
  at("clear").addEventListener("click", () => { chosen.clear(); changed(); });
  document.addEventListener("lading-refreshed", () => { for (const run of chosen) { const row = rows().find((one) => one.dataset.run === run); if (row && row.textContent.includes("running")) known.delete(run); } sort(); filter(); changed(); });
  addEventListener("resize", draw);
  changed();
})();
