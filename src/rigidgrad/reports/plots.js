// Charts of a report: values under the pointer, zoom by dragging, back by a double click. Those in one group that share the axis across zoom together.
(() => {
"use strict";
const SVG = "http://www.w3.org/2000/svg";

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function node(tag, attributes, parent) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
}

// Round numbers within a range, few enough to label.
function ticks(low, high, log) {
  if (log) {
    let found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) found.push(...[1, 2, 5].map((m) => m * 10 ** e));
    found = found.filter((x) => x >= low && x <= high);
    if (found.length >= 2) return found.length <= 7 ? found : found.filter((x) => x.toExponential().startsWith("1e"));
  }
  let step = 10 ** Math.floor(Math.log10((high - low) / 4 || 1));
  step *= [1, 2, 5, 10].find((m) => (high - low) / (m * step) <= 6);
  const found = [];
  for (let k = Math.ceil(low / step); k <= Math.floor(high / step); k++) found.push(step * k);
  return found;
}

const shown = (x) => String(+x.toPrecision(5));

class Chart {
  constructor(figure) {
    Object.assign(this, JSON.parse(figure.dataset.plot));
    this.figure = figure, this.svg = figure.querySelector("svg"), this.area = figure.querySelector(".area");
    this.back = figure.querySelector(".back"); // the box of the area itself reaches as far as its lines do
    [this.wide, this.tall] = this.size;
    this.home = { x: this.x, y: this.y };
    this.lines = [...this.area.querySelectorAll("polyline")].map((line) => ({
      line, name: line.dataset.name, color: line.getAttribute("stroke"), x: floats(line.dataset.x), y: floats(line.dataset.y), on: true,
    }));
    this.levels = [...this.area.querySelectorAll(".level")];
    this.band = this.area.querySelector(".band");
    this.cursor = node("line", { class: "cursor", y2: this.tall, visibility: "hidden" }, this.area);
    this.dots = this.lines.map(({ color }) => node("circle", { r: 3, fill: color, visibility: "hidden" }, this.area));
    this.chosen = node("rect", { class: "chosen", height: this.tall, visibility: "hidden" }, this.area);
    this.value = document.createElement("div");
    this.value.className = "value", this.value.hidden = true;
    figure.append(this.value);
    this.watch();
  }

  // --- scales

  across(x) {
    return (this.wide * (x - this.x[0])) / (this.x[1] - this.x[0] || 1);
  }

  up(y) {
    const [low, high] = this.y;
    const share = this.log ? Math.log(Math.max(y, low) / low) / Math.log(high / low) : (y - low) / (high - low);
    return this.tall * (1 - share);
  }

  // Shows a range across; up, what it holds. Without a range all, as at first.
  zoom(range) {
    this.x = range || this.home.x;
    this.y = this.home.y;
    if (range) {
      let low = Infinity, high = -Infinity;
      for (const { x, y, on } of this.lines) {
        if (!on) continue;
        for (let i = 0; i < x.length; i++) {
          const near = x[Math.min(i + 1, x.length - 1)] >= range[0] && x[Math.max(i - 1, 0)] <= range[1];
          if (near && Number.isFinite(y[i]) && (!this.log || y[i] > 0)) (low = Math.min(low, y[i])), (high = Math.max(high, y[i]));
        }
      }
      const margin = 0.05 * (high - low) || 0.05 * Math.abs(high) || 0.5;
      if (low <= high) this.y = this.log ? [low / 1.05, high * 1.05] : [low - margin, high + margin];
    }
    this.draw();
  }

  draw() {
    const group = this.figure.querySelector(".ticks");
    group.replaceChildren();
    for (const value of ticks(...this.y, this.log)) {
      const y = this.up(value);
      node("line", { class: "grid", x2: this.wide, y1: y, y2: y }, group);
      node("text", { x: -6, y: y + 4, "text-anchor": "end" }, group).textContent = shown(value);
    }
    for (const value of ticks(...this.x, false)) node("text", { x: this.across(value), y: this.tall + 15, "text-anchor": "middle" }, group).textContent = shown(value);
    for (const { line, x, y, on } of this.lines) {
      const points = [];
      for (let i = 0; i < x.length; i++) if (Number.isFinite(y[i])) points.push(`${this.across(x[i]).toFixed(1)},${this.up(y[i]).toFixed(1)}`);
      line.setAttribute("points", points.join(" "));
      line.setAttribute("visibility", on ? "visible" : "hidden");
    }
    for (const level of this.levels) {
      const y = this.up(+level.dataset.y);
      level.setAttribute("y1", y), level.setAttribute("y2", y);
    }
    if (this.band) {
      const [from, to] = this.band.dataset.x.split(",").map((x) => this.across(+x));
      this.band.setAttribute("x", from), this.band.setAttribute("width", Math.max(to - from, 0));
      this.band.nextElementSibling.setAttribute("x", from + 4);
    }
  }

  // --- values

  // Marks a place across, by pixels of the area.
  show(pixel) {
    const x = this.x[0] + (pixel / this.wide) * (this.x[1] - this.x[0]), rows = [];
    let at = x, nearest = Infinity;
    for (const line of this.lines) {
      for (const here of line.x) if (Math.abs(here - x) < nearest) (nearest = Math.abs(here - x)), (at = here);
    }
    this.at = at;
    this.lines.forEach((line, k) => {
      let i = 0;
      for (let j = 1; j < line.x.length; j++) if (Math.abs(line.x[j] - at) < Math.abs(line.x[i] - at)) i = j;
      const seen = line.on && Number.isFinite(line.y[i]);
      this.dots[k].setAttribute("visibility", seen ? "visible" : "hidden");
      if (!seen) return;
      this.dots[k].setAttribute("cx", this.across(line.x[i])), this.dots[k].setAttribute("cy", this.up(line.y[i]));
      rows.push([line.color, `${line.name}: ${shown(line.y[i])}${this.unit ? ` ${this.unit}` : ""}`]);
    });
    const place = this.across(at);
    this.cursor.setAttribute("x1", place), this.cursor.setAttribute("x2", place), this.cursor.setAttribute("visibility", "visible");
    this.value.replaceChildren();
    const head = document.createElement("b");
    const [, name, unit] = this.axis.match(/^(.*?)(?: \[(.*)\])?$/);
    head.textContent = `${name} ${shown(at)} ${unit || ""}`;
    this.value.append(head);
    for (const [color, text] of rows) {
      const row = document.createElement("div"), mark = document.createElement("i");
      mark.style.background = color;
      row.append(mark, text);
      this.value.append(row);
    }
    this.value.hidden = false;
    const own = this.figure.getBoundingClientRect(), box = this.back.getBoundingClientRect(), scale = box.width / this.wide;
    const left = box.left - own.left + place * scale, right = left > own.width / 2;
    this.value.style.left = right ? "" : `${left + 10}px`;
    this.value.style.right = right ? `${own.width - left + 10}px` : "";
    this.value.style.top = `${box.top - own.top + 6}px`;
  }

  hide() {
    this.value.hidden = true;
    for (const mark of [this.cursor, ...this.dots]) mark.setAttribute("visibility", "hidden");
  }

  // --- input

  watch() {
    const { area, svg } = this;
    const pixel = (e) => {
      const box = this.back.getBoundingClientRect();
      return Math.min(Math.max(((e.clientX - box.left) / box.width) * this.wide, 0), this.wide);
    };
    let from = null;
    area.addEventListener("pointerdown", (e) => {
      if (e.button !== 0 || e.pointerType === "touch") return;
      area.setPointerCapture(e.pointerId);
      from = pixel(e);
    });
    area.addEventListener("pointermove", (e) => {
      const now = pixel(e);
      this.show(now);
      if (from === null) return;
      this.chosen.setAttribute("x", Math.min(from, now)), this.chosen.setAttribute("width", Math.abs(now - from));
      this.chosen.setAttribute("visibility", "visible");
    });
    area.addEventListener("pointerup", (e) => {
      const now = pixel(e), begun = from;
      from = null;
      this.chosen.setAttribute("visibility", "hidden");
      if (begun === null || Math.abs(now - begun) < 5) return;
      const value = (p) => this.x[0] + (p / this.wide) * (this.x[1] - this.x[0]);
      const range = [Math.min(begun, now), Math.max(begun, now)].map(value); // before this chart changes
      this.hide();
      this.all((chart) => chart.zoom(range));
    });
    area.addEventListener("pointercancel", () => ((from = null), this.chosen.setAttribute("visibility", "hidden")));
    area.addEventListener("pointerleave", () => this.hide());
    area.addEventListener("dblclick", () => this.all((chart) => chart.zoom(null)));
    svg.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (step) {
        const x = this.lines[0].x;
        let i = x.findIndex((value) => value >= (this.at ?? this.x[0]));
        i = Math.min(Math.max((i < 0 ? x.length - 1 : i) + step, 0), x.length - 1);
        this.show(this.across(x[i]));
      } else if (e.key === "Escape") this.all((chart) => chart.zoom(null));
      else return;
      e.preventDefault();
    });
    svg.addEventListener("blur", () => this.hide());
    for (const key of this.figure.querySelectorAll(".key")) {
      key.addEventListener("click", () => {
        const line = this.lines[+key.dataset.line];
        line.on = !line.on;
        key.classList.toggle("off", !line.on);
        this.draw();
      });
    }
  }

  // Calls with all that are zoomed together.
  all(call) {
    for (const chart of this.group) if (chart.axis === this.axis) call(chart);
  }
}

for (const group of document.querySelectorAll(".plots")) {
  const all = [...group.querySelectorAll(".plot")].map((figure) => new Chart(figure));
  for (const chart of all) chart.group = all;
}
})();
