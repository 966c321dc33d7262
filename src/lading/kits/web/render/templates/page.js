"use strict";
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Names come from the run: characters that act are spelled out, and plotly's markup is text.
  const shown = (text) => String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
  const label = (text) => shown(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "% {");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const base = location.pathname.replace(/\/$/, "");
  const twin = document.body.dataset.live;
  let page = null, wait = 1500;

  function layout(extra) {
    const axis = { gridcolor: css("--grid"), zeroline: false, automargin: true, linecolor: css("--line") };
    return {
      height: 320, margin: { l: 52, r: 14, t: 8, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest", uirevision: "kept",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--soft") }, hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--line"), font: { color: css("--ink") } },
      ...extra, xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis },
    };
  }
  const lines = (changes) => changes.map((c) => ({ type: "line", x0: c.step, x1: c.step, yref: "paper", y0: 0, y1: 1, line: { color: css("--soft"), width: 1, dash: "dot" } }));
  const figures = {
    loss(p) {
      const traces = [{ type: "scatter", mode: "lines", x: p.loss.step, y: p.loss.loss, line: { color: css("--c0"), width: 1.4 }, hovertemplate: "step %{x}<br>loss %{y:.5g}<extra></extra>" }];
      for (const u of p.undone) traces.push({ type: "scatter", mode: "lines", x: u.step, y: u.loss, line: { color: css("--undone"), width: 1.1 }, hovertemplate: "attempt " + u.attempt + ", undone<br>step %{x}<br>loss %{y:.5g}<extra></extra>" });
      const marks = p.spike_marks.filter((s) => s.loss !== null);
      const saved = p.checkpoints, low = Math.min(...p.loss.loss.filter((v) => v !== null));
      if (saved.length) traces.push({ type: "scatter", mode: "markers", x: saved.map((c) => Math.max(c.step - 1, 0)), y: saved.map(() => low), customdata: saved.map((c) => c.place), text: saved.map((c) => c.name.replace(/[<>&]/g, "")), marker: { color: css("--ink"), size: 9, symbol: "diamond" }, hovertemplate: "%{text}<br>after step %{x}<extra></extra>" });
      if (marks.length) traces.push({ type: "scatter", mode: "markers", x: marks.map((s) => s.step), y: marks.map((s) => s.loss), marker: { color: css("--mark"), size: 10, symbol: "circle-open", line: { width: 2 } }, hovertemplate: "spike at step %{x}<br>loss %{y:.5g}<extra></extra>" });
      return [traces, layout({ shapes: lines(p.changes), xaxis: { range: undefined }, yaxis: {} })];
    },
    mix(p) {
      const x = p.mix.first_step.map((first, i) => (first + p.mix.last_step[i]) / 2);
      if (x.length > 1) { x[0] = p.mix.first_step[0]; x[x.length - 1] = p.mix.last_step[x.length - 1]; } // as wide as the loss
      const traces = p.mix.datasets.map((d) => ({ type: "scatter", mode: "lines", stackgroup: "one", x, y: d.share.map((v) => 100 * v), line: { width: 0.5, color: css("--c" + d.colour) }, hovertemplate: label(d.dataset) + ": %{y:.2f} %<extra></extra>" }));
      let sum = x.map(() => 0);
      for (const d of p.mix.datasets.slice(0, -1)) {
        if (d.planned === null) break;
        sum = sum.map((v, i) => v + 100 * d.planned[i]);
        traces.push({ type: "scatter", mode: "lines", x, y: sum, line: { dash: "dash", width: 1, color: css("--ink") }, hoverinfo: "skip" });
      }
      return [traces, layout({ shapes: lines(p.changes), yaxis: { range: [0, 100], ticksuffix: " %" }, height: 280 })];
    },
  };

  function draw() {
    if (!window.Plotly || !page) return;
    for (const room of document.querySelectorAll(".live-chart")) {
      const kind = room.dataset.chart;
      let target = room.querySelector(".plotly-chart");
      if (!target) {
        target = document.createElement("div");
        target.className = "plotly-chart";
        room.replaceChildren(target);
      }
      const [traces, rest] = figures[kind](page);
      Plotly.react(target, traces, rest, { responsive: true, displayModeBar: false, scrollZoom: false, doubleClick: "reset" });
      if (kind === "loss" && !target.dataset.bound) {
        target.dataset.bound = "yes";
        target.on("plotly_click", (event) => { const at = event.points[0]; location.href = base + "/" + (at.customdata || "step/" + Number(at.x)); });
      }
    }
    document.body.dataset.drawn = String(page.steps);
  }

  async function refresh(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const part of document.querySelectorAll("[id^=live-]")) {
      const other = fresh.getElementById(part.id);
      if (other && other.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(other));
    }
    for (const room of document.querySelectorAll("section[id^=section-]")) {
      const other = fresh.getElementById(room.id);
      if (!other) continue;
      const legend = room.querySelector(".legend"), newer = other.querySelector(".legend");
      if (!room.querySelector(".live-chart") && other.querySelector(".live-chart")) room.replaceWith(document.adoptNode(other));
      else if (legend && newer) legend.replaceWith(document.adoptNode(newer));
    }
  }

  async function poll() {
    const began = performance.now();
    let running = true;
    try {
      if (!document.hidden) {
        const version = page && page.version ? "?since=" + encodeURIComponent(page.version) : "";
        const answer = await fetch(twin + version);
        if (answer.ok) {
          const found = await answer.json();
          if (!found.unchanged) {
            const first = page === null;
            page = found;
            if (!first || Array.isArray(found)) await refresh(await (await fetch(location.href)).text());
            if (!Array.isArray(found)) draw();
          }
          running = Array.isArray(found) || page.state === "running";
        }
      }
    } catch (error) { running = false; /* the server is gone; ask again later */ }
    wait = Math.max(running ? 1500 : 8000, 4 * (performance.now() - began));
    setTimeout(poll, wait);
  }

  if (twin) {
    poll();
    dark.addEventListener("change", draw);
  }
  addEventListener("load", draw);

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
  });
})();
