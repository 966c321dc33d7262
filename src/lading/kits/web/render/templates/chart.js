"use strict";
// Charts with a pointer: the elements and classes that the server draws, with smoothing, log axis, units and stretches.
const Lading = (() => {
  const COLOURS = 10;
  const shown = (text) => String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
  const make = (tag, kind = "", text = null) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== null) made.textContent = shown(text);
    return made;
  };
  const drawn = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);
  const finite = (value) => value !== null && Number.isFinite(value);
  const short = (value) => (finite(value) ? String(Number(value.toPrecision(5))) : "–");
  const tick = (value) => { const text = short(value); return text.length > 7 ? value.toExponential(3).replace(/\.?0+e/, "e") : text; };
  const spaced = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const human = (value) => {
    for (const [least, size, unit] of [[1e12, 1e12, "T"], [1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]]) if (Math.abs(value) >= least) return Number((value / size).toPrecision(4)) + unit;
    return String(Number(value.toPrecision(4)));
  };
  const time = (seconds) => (seconds < 90 ? Math.round(seconds * 10) / 10 + " s" : seconds < 5400 ? Math.round(seconds / 6) / 10 + " min" : Math.round(seconds / 360) / 10 + " h");

  function place(xs, x) { // of the last of rising numbers that is at most x
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle - 1;
    }
    return low;
  }
  function between(xs, ys, x) {
    if (!xs.length) return x;
    const at = place(xs, x);
    if (x <= xs[0] || at === xs.length - 1) return ys[at];
    return ys[at] + ((ys[at + 1] - ys[at]) * (x - xs[at])) / (xs[at + 1] - xs[at] || 1);
  }
  function nearest(line, step) {
    const at = place(line.step, step), other = Math.min(at + 1, line.step.length - 1);
    return Math.abs(line.step[other] - step) < Math.abs(line.step[at] - step) ? other : at;
  }
  function smoothed(line, strength) {
    const steps = line.mean_step || line.step, values = line.mean || line.value;
    const span = 1 + (strength / 100) ** 2 * values.length / 4, keep = 1 - 2 / (span + 1);
    let sum = 0, weight = 0;
    return { step: steps, value: values.map((v) => { if (!finite(v)) return null; sum = keep * sum + v; weight = keep * weight + 1; return sum / weight; }) };
  }
  function roundStep(rough) {
    if (!(rough > 0) || !Number.isFinite(rough)) return 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 2.5, 5, 10].find((m) => m * power >= rough * (1 - 1e-9)) * power;
  }
  function linearTicks(low, high, most, write) {
    const step = roundStep((high - low) / most), found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-12) + 1e-12; n += 1) found.push([n * step, write(Number((n * step).toPrecision(12)))]);
    return found;
  }
  function logTicks(low, high) {
    const found = [], wide = high - low > 3;
    for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) for (const m of wide ? [1] : [1, 2, 5]) {
      const at = Math.log10(m) + power;
      if (at >= low && at <= high) found.push([at, power < -3 || power > 4 ? m + "e" + power : String(Number((m * 10 ** power).toPrecision(3)))]);
    }
    return found.length > 1 ? found : linearTicks(low, high, 4, (v) => short(10 ** v));
  }

  class Chart {
    // `opens(place)`: go there, a step or a stretch; null: nothing is opened. `zooms(first, last)`: draw a stretch.
    constructor(room, { height = 260, opens = null, zooms = null } = {}) {
      Object.assign(this, { room, opens, zooms, lines: [], marks: [], clock: null, steps: 0, view: {} });
      this.figure = make("figure", "chart pointed");
      this.figure.style.setProperty("--height", height + "px");
      this.plot = make("div", "plot");
      this.figure.append(this.plot);
      room.replaceChildren(this.figure);
      this.note = make("div", "tip");
      this.cross = make("div", "cross");
      this.box = make("div", "stretch");
      this.menu = make("div", "menu");
      for (const part of [this.note, this.cross, this.box, this.menu]) part.hidden = true;
      this.plot.addEventListener("pointermove", (event) => this.moved(event));
      this.plot.addEventListener("pointerleave", () => { if (this.from === undefined) this.note.hidden = this.cross.hidden = true; });
      this.plot.addEventListener("pointerdown", (event) => this.pressed(event));
      this.plot.addEventListener("pointerup", (event) => this.released(event));
      this.plot.addEventListener("pointercancel", () => { this.from = undefined; this.box.hidden = true; });
    }

    draw(view, content = {}) {
      Object.assign(this, content, { view });
      const by = this.unit(), lines = this.lines.filter((line) => line.step.length);
      this.x = [by(view.first ?? 0), by(view.last ?? Math.max(this.steps - 1, 1))];
      if (this.x[1] <= this.x[0]) this.x[1] = this.x[0] + 1;
      const scale = view.log ? (v) => (finite(v) && v > 0 ? Math.log10(v) : null) : (v) => (finite(v) ? v : null);
      const seen = (line) => line.value.filter((v, i) => (view.first === undefined || line.step[i] >= view.first) && (view.last === undefined || line.step[i] <= view.last));
      let low = Infinity, high = -Infinity;
      for (const line of lines) for (const value of seen(line)) { const v = scale(value); if (v !== null) { low = Math.min(low, v); high = Math.max(high, v); } }
      if (low > high) [low, high] = [0, 1];
      const room = (high - low) * 0.05 || Math.abs(high) || 1; // of a line that does not move: round numbers around it
      this.y = [low - room, high + room];
      this.scale = scale;
      const picture = drawn("svg");
      picture.setAttribute("viewBox", "0 0 1000 1000");
      picture.setAttribute("preserveAspectRatio", "none");
      const add = (line, kind) => { const path = drawn("path"); path.setAttribute("class", kind); path.setAttribute("d", this.path(line, by)); picture.append(path); };
      lines.forEach((line) => {
        if (!view.smooth || line.kind === "undone") add(line, line.kind);
        else { add(line, line.kind + " faint"); }
      });
      if (view.smooth) lines.filter((line) => line.kind !== "undone").forEach((line) => add(smoothed(line, view.smooth), line.kind));
      const parts = [], grid = [];
      const ticks = view.log ? logTicks(...this.y) : linearTicks(...this.y, 4, tick);
      for (const [value, text] of ticks) {
        const top = 100 - this.percent(this.y, value) + "%";
        for (const [kind, list] of [["grid", grid], ["tick y", parts]]) { const part = make("span", kind, kind === "grid" ? null : text); part.style.top = top; list.push(part); }
      }
      const narrow = this.room.clientWidth < 520;
      linearTicks(...this.x, narrow ? 4 : 8, view.by === "seconds" ? time : human).forEach(([value, text]) => {
        const part = make("span", "tick x", text);
        part.style.left = this.percent(this.x, value) + "%";
        parts.push(part);
      });
      this.plot.replaceChildren(...grid, picture, ...parts, ...this.marked(by), this.box, this.cross, this.note, this.menu);
    }

    unit() {
      const { clock, view } = this, other = clock && clock[view.by];
      return other ? (step) => between(clock.step, other, step) : (step) => step;
    }
    percent(axis, value) { return Math.round((1e5 * (value - axis[0])) / (axis[1] - axis[0])) / 1e3; }
    stepAt(share) {
      const value = this.x[0] + share * (this.x[1] - this.x[0]), other = this.clock && this.clock[this.view.by];
      const step = other ? between(other, this.clock.step, value) : value;
      return Math.round(Math.min(Math.max(step, this.view.first ?? 0), this.view.last ?? Math.max(this.steps - 1, 0)));
    }
    path(line, by) {
      let text = "", drawing = false;
      line.step.forEach((step, i) => {
        const value = this.scale(line.value[i]);
        if (value === null) { drawing = false; return; }
        text += (drawing ? "L" : "M") + Math.round(10 * this.percent(this.x, by(step))) + " " + Math.round(1000 - 10 * this.percent(this.y, value));
        drawing = true;
      });
      return text;
    }
    marked(by) {
      const found = [];
      for (const mark of this.marks) {
        const left = this.percent(this.x, by(mark.step)), value = mark.value === undefined ? null : this.scale(mark.value);
        if (left < 0 || left > 100 || (mark.value !== undefined && value === null)) continue;
        const part = make(mark.place && this.opens ? "a" : "span", mark.kind);
        if (mark.place && this.opens) part.href = this.opens(mark.place);
        part.style.left = left + "%";
        if (mark.kind !== "line") part.style.top = (mark.value === undefined ? 100 : 100 - this.percent(this.y, value)) + "%";
        part.title = shown(mark.text);
        found.push(part);
      }
      return found;
    }

    share(event) {
      const box = this.plot.getBoundingClientRect();
      return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    }
    moved(event) {
      const share = this.share(event);
      if (this.from !== undefined && Math.abs(event.clientX - this.pressedAt) > 5) {
        this.box.hidden = false;
        this.box.style.left = 100 * Math.min(this.from, share) + "%";
        this.box.style.width = 100 * Math.abs(this.from - share) + "%";
      }
      this.read(share);
    }
    read(share) {
      const lines = this.lines.filter((line) => line.step.length && line.kind !== "undone");
      if (!lines.length) return;
      const asked = this.stepAt(share), by = this.unit();
      const step = lines[0].step[nearest(lines[0], asked)];
      const rows = lines.map((line) => [line, line.value[nearest(line, step)]]).filter((row) => finite(row[1])).sort((a, b) => b[1] - a[1]);
      const left = this.percent(this.x, by(step));
      this.cross.style.left = left + "%";
      const parts = [make("b", "", this.named(step))];
      if (this.view.by !== "step" && this.clock && this.clock[this.view.by]) parts.push(make("span", "planned", " " + (this.view.by === "seconds" ? time(by(step)) : human(by(step)) + " " + this.view.by)));
      for (const [line, value] of rows.slice(0, 12)) {
        const row = make("div");
        row.append(make("i", "key " + line.kind), make("span", "", lines.length > 1 ? line.name + " " : ""), make("b", "", short(value)));
        parts.push(row);
      }
      if (rows.length > 12) parts.push(make("div", "planned", "and " + (rows.length - 12) + " more"));
      this.note.replaceChildren(...parts);
      this.note.classList.toggle("left", left > 60);
      this.note.style.left = left + "%";
      this.note.hidden = this.cross.hidden = false;
      this.at = step;
    }
    named(step) { // an overlay of runs is drawn along its unit: there are no steps
      const { label } = this.view;
      return !label || label === "step" ? "step " + spaced(step) : label === "seconds" ? time(step) : human(step) + " " + label;
    }
    pressed(event) {
      if (event.button || event.target.closest("a, button")) return;
      this.menu.hidden = this.box.hidden = true;
      this.from = this.share(event);
      this.pressedAt = event.clientX;
      if (event.pointerType === "mouse") event.preventDefault(); // no text is selected
      this.plot.setPointerCapture(event.pointerId);
    }
    released(event) {
      if (this.from === undefined) return;
      const from = this.from, to = this.share(event), far = Math.abs(event.clientX - this.pressedAt) > 5;
      this.from = undefined;
      if (far) this.offer(this.stepAt(Math.min(from, to)), this.stepAt(Math.max(from, to)));
      else if (event.pointerType === "mouse") { if (this.opens && this.at !== undefined) location.href = this.opens("step/" + this.at); }
      else { this.read(to); if (this.opens && this.at !== undefined) this.offer(this.at, this.at); }
    }
    offer(first, last) {
      const parts = [make("span", "", first === last ? this.named(first) : this.named(first) + " – " + this.named(last).replace("step ", ""))];
      if (this.opens) { const link = make("a", "", first === last ? "open" : "open its samples"); link.href = this.opens(first === last ? "step/" + first : "steps/" + first + "-" + last); parts.push(link); }
      if (this.zooms && last > first) { const zoom = make("button", "", "zoom"); zoom.type = "button"; zoom.addEventListener("click", () => { this.menu.hidden = this.box.hidden = true; this.zooms(first, last); }); parts.push(zoom); }
      this.menu.replaceChildren(...parts);
      const by = this.unit(), middle = this.percent(this.x, (by(first) + by(last)) / 2);
      this.menu.style.left = Math.min(Math.max(middle, 12), 88) + "%";
      this.menu.hidden = false;
      this.note.hidden = true;
    }
  }

  // What all charts of a page share. Kept by the browser, so that the next page is drawn alike.
  function controls(form, redraw) {
    const view = { smooth: 0, log: false, by: "step" };
    try { Object.assign(view, JSON.parse(localStorage.getItem("lading-view") || "{}")); } catch (error) { /* no storage */ }
    const { smooth, log, by, reset } = form.elements;
    const show = () => { smooth.value = view.smooth; log.checked = view.log; by.value = view.by; reset.hidden = view.first === undefined; form.hidden = false; };
    form.addEventListener("input", () => {
      Object.assign(view, { smooth: Number(smooth.value), log: log.checked, by: by.value });
      try { localStorage.setItem("lading-view", JSON.stringify({ smooth: view.smooth, log: view.log, by: view.by })); } catch (error) { /* no storage */ }
      redraw();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    const zoom = (first, last) => { view.first = first; view.last = last; show(); redraw(true); };
    reset.addEventListener("click", () => { delete view.first; delete view.last; show(); redraw(true); });
    const offer = (clock) => { // units that are not known are not offered
      for (const option of by.options) option.hidden = option.value !== "step" && !(clock && clock[option.value]);
      if (by.selectedOptions.length && by.selectedOptions[0].hidden) by.value = "step";
      view.by = by.value;
    };
    show();
    return { view, zoom, offer };
  }

  return { Chart, controls, make, shown, human, spaced, between, COLOURS };
})();
