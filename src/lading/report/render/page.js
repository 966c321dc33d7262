"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);
for (const [id, figure] of Object.entries(page.figures)) {
  Plotly.newPlot(id, figure.data, figure.layout, { responsive: true, displayModeBar: false });
}
window.addEventListener("beforeprint", () => document.querySelectorAll(".chart").forEach((e) => Plotly.Plots.resize(e)));

const rows = page.steps, size = 50;
let first = 0;
const body = document.querySelector("#steps tbody"), place = document.getElementById("place");
function draw() {
  body.textContent = "";
  for (const row of rows.slice(first, first + size)) {
    const line = body.insertRow();
    row.forEach((value, column) => {
      const cell = line.insertCell();
      cell.textContent = value === null ? "–" : value;
      if (column === page.fateColumn) cell.className = "word " + value;
    });
  }
  place.textContent = rows.length ? `${first + 1}–${Math.min(first + size, rows.length)} of ${rows.length}` : "none";
}
function go(to) { first = Math.max(0, Math.min(to, rows.length - 1)); first -= first % size; draw(); }
document.getElementById("back").onclick = () => go(first - size);
document.getElementById("next").onclick = () => go(first + size < rows.length ? first + size : first);
document.getElementById("goto").onchange = (event) => {
  const wanted = Number(event.target.value);
  const found = rows.findIndex((row) => row[0] >= wanted);
  go(found < 0 ? rows.length - 1 : found);
};
draw();
document.body.dataset.ready = "yes";
