// Self-attention as arcs over one line of tokens: above it to earlier tokens, below it to later ones, a ring to itself.

import { FONT, weightOf } from "./drawing.js";
import { ScrolledCanvas, range, widestOf } from "./scrolled_canvas.js";
import { svgText } from "./svg.js";

const MOST_ARCS = 4000; // arcs on the screen, unless asked for more
const USUAL = 12; // the byte of 0.05
const MARGIN = 16;

export class ArcDiagram {
  static hint =
    "Point at a word, or step into the line and use the arrow keys: ↑ what it attends to, ↓ what attends to it.";

  constructor({ onPick }) {
    this.canvas = new ScrolledCanvas(() => this.draw());
    this.element = this.canvas.box;
    this.element.classList.add("arcs");
    this.onPick = onPick;
    this.sizes = [1, 96]; // from token to token
    for (const name of ["pointermove", "pointerdown"])
      this.canvas.overlay.addEventListener(name, (event) => this.point(event));
    this.element.addEventListener("keydown", (event) => this.press(event));
  }

  static threshold({ bytes, rows }) { // 0.05, unless that leaves too many arcs, or less than one per token
    const over = new Uint32Array(257); // over[t]: how many weights are at least t
    for (const byte of bytes) over[byte]++;
    for (let byte = 254; byte >= 0; byte--) over[byte] += over[byte + 1];
    let threshold = USUAL;
    while (threshold < 254 && over[threshold + 1] > MOST_ARCS) threshold++;
    while (threshold > 1 && over[threshold + 1] < rows.length) threshold--;
    return threshold;
  }

  show({ matrix, name, paint, size, row, column, threshold }) { // `size` 0: as large as fits
    Object.assign(this, { matrix, paint, row, column, threshold: threshold || ArcDiagram.threshold(matrix) });
    const count = matrix.rows.length, { room, tallest } = this.canvas;
    this.arcs = [...matrix.bytes.keys()].filter((i) => matrix.bytes[i] > this.threshold)
      .map((i) => ({ row: Math.floor(i / count), column: i % count, byte: matrix.bytes[i] }))
      .sort((one, other) => one.byte - other.byte); // heavy ones lie over light ones
    this.element.ariaLabel = `Arcs: ${name}. ${count} tokens, ${this.arcs.length} weights over ${this.stated}.`;
    this.widest = widestOf(matrix.words.rows, this.canvas.base.getContext("2d"), FONT);
    const fitting = Math.floor((8 * (room - 2 * MARGIN)) / Math.max(1, count)) / 8;
    this.shape = this.plan(size || Math.min(96, Math.max(count > 64 ? 1 : 18, fitting)), Math.min(tallest - 24, 620));
    this.size = this.shape.cell;
    this.canvas.fit(this.shape.width, this.shape.height);
    this.draw();
  }

  plan(cell, tallest) { // tokens `cell` apart; their words level if they fit, otherwise upright
    const count = this.matrix.rows.length, font = Math.min(16, Math.max(11, Math.round(0.25 * cell + 6)));
    const angle = this.widest * font < cell - 6 ? 0 : 90;
    const band = Math.ceil(angle ? this.widest * font + 12 : 2 * font);
    const reach = (side) => Math.max(0, ...this.arcs.map(({ row, column }) => side * (row - column)));
    const [back, ahead] = [reach(1), reach(-1)], sides = (back > 0) + (ahead > 0) || 1;
    const ring = Math.max(1, Math.min(8, cell / 2 - 1));
    const most = Math.max(60, (tallest - band - 2 * MARGIN) / sides);
    const rise = (distance) => Math.min(0.6 * cell * distance, most * (distance / Math.max(back, ahead)) ** 0.6);
    const top = Math.max(2 * ring, back && rise(back)) + 8, low = ahead ? rise(ahead) + 8 : 4;
    return { cell, font, angle, band, rise, ring, top, bottom: top + band, width: 2 * MARGIN + count * cell,
      height: Math.ceil(top + band + low), step: Math.ceil(14 / cell) };
  }

  get own() { // the chosen token
    return this.row >= 0 ? this.row : this.column;
  }

  middle(token) {
    return MARGIN + (token + 0.5) * this.shape.cell;
  }

  line(byte) { // how an arc of this weight is drawn
    const share = this.paint.share(byte);
    return { width: 0.8 + 2.6 * share, opacity: 0.3 + 0.7 * share };
  }

  get legend() {
    const [none, full] = [0, this.paint.full].map((byte) => this.line(byte).opacity);
    return `linear-gradient(90deg, rgba(${this.paint.scale[255]}, ${none}), rgba(${this.paint.scale[255]}, ${full}))`;
  }

  // ── drawing ──
  draw() { // what is in sight
    const context = this.canvas.base.getContext("2d"), area = this.canvas.inSight;
    context.fillStyle = this.paint.panel;
    context.fillRect(0, 0, area.width, area.height);
    for (const arc of this.arcs) this.stroke(context, area, arc, this.strong);
    this.label(context, area, -1, new Set());
    this.light(this.row, this.column);
  }

  get strong() {
    return `rgb(${this.paint.scale[255]})`;
  }

  stroke(context, area, { row, column, byte }, colour) {
    const { top, bottom, rise, ring } = this.shape, [from, to] = [row, column].map((at) => this.middle(at) - area.x);
    if (Math.max(from, to) + ring < 0 || Math.min(from, to) - ring > area.width) return;
    const { width, opacity } = this.line(byte), distance = Math.abs(row - column);
    Object.assign(context, { strokeStyle: colour, lineWidth: width, globalAlpha: opacity });
    context.beginPath();
    if (!distance) context.ellipse(from, top - ring - area.y, ring, ring, 0, 0, 2 * Math.PI);
    else context.ellipse((from + to) / 2, (column < row ? top : bottom) - area.y, Math.abs(from - to) / 2,
      rise(distance), 0, column < row ? Math.PI : 0, column < row ? 2 * Math.PI : Math.PI);
    context.stroke();
    context.globalAlpha = 1;
  }

  label(context, area, own, lit) { // `lit`: the tokens that the chosen one attends to, or is attended to by
    const { matrix, paint, shape: { cell, font, angle, top, band, step } } = this;
    const free = (i) => i === own || ((lit.has(i) || i % step === 0) && (own < 0 || Math.abs(i - own) * cell >= 14));
    Object.assign(context, { textAlign: angle ? "right" : "center", textBaseline: "middle" });
    let last = -Infinity;
    for (const token of range(area.x - MARGIN, area.width + MARGIN, cell, matrix.rows.length).filter(free)) {
      if (token !== own && (token - last) * cell < 13) continue;
      last = token;
      context.fillStyle = token === own ? paint.accent : own < 0 || lit.has(token) ? paint.ink : paint.quiet;
      context.font = `${token === own ? "bold " : ""}${font}px ${FONT}`;
      context.save();
      context.translate(this.middle(token) - area.x, top - area.y + (angle ? 6 : band / 2));
      context.rotate((-angle * Math.PI) / 180);
      context.fillText(matrix.words.rows[token], 0, 0);
      context.restore();
    }
  }

  light(row, column) { // a chosen token has its arcs alone
    Object.assign(this, { row, column });
    const context = this.canvas.overlay.getContext("2d"), area = this.canvas.inSight, { own } = this;
    this.lit = own < 0 ? this.arcs : this.arcs.filter((arc) => (row >= 0 ? arc.row === row : arc.column === column));
    this.canvas.base.style.visibility = own < 0 ? "" : "hidden";
    context.clearRect(0, 0, area.width, area.height);
    if (own < 0) return;
    for (const arc of this.lit)
      this.stroke(context, area, arc, row >= 0 && arc.column === column ? this.paint.accent : this.strong);
    this.label(context, area, own, new Set(this.lit.map((arc) => (row >= 0 ? arc.column : arc.row))));
  }

  // ── pointing and keys ──
  pick(row, column) { // `light` follows, at most once per frame
    Object.assign(this, { row, column });
    this.onPick(row, column);
  }

  point({ offsetX, offsetY }) { // among the arcs: all of them again
    const { x, y } = this.canvas.inSight, { cell, top, bottom } = this.shape;
    const token = Math.floor((offsetX + x - MARGIN) / cell), level = offsetY + y;
    const inside = token >= 0 && token < this.matrix.rows.length && level >= top - 6 && level <= bottom + 6;
    this.pick(inside ? token : -1, -1);
  }

  press(event) {
    const count = this.matrix.rows.length, { own } = this;
    if (event.key === "Escape") this.pick(-1, -1);
    if (!/^Arrow/.test(event.key) || event.altKey || event.ctrlKey || event.metaKey || !count) return;
    event.preventDefault();
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
    const token = own < 0 ? 0 : Math.min(count - 1, Math.max(0, own + by));
    const back = event.key === "ArrowDown" || (this.row < 0 && this.column >= 0 && event.key !== "ArrowUp");
    this.pick(back ? -1 : token, back ? token : -1);
    this.reveal();
  }

  reveal() {
    const { own, shape: { cell } } = this, { x, width } = this.canvas.inSight, at = this.middle(own);
    if (own >= 0) this.element.scrollTo(Math.min(at - cell, Math.max(x, at + cell - width)), this.element.scrollTop);
  }

  // ── files ──
  get stated() { // two digits
    return (this.threshold / 255).toFixed(this.threshold < 10 ? 3 : 2);
  }

  get note() {
    const count = this.matrix.bytes.length.toLocaleString("en"), drawn = this.arcs.length.toLocaleString("en");
    return `Above: to earlier tokens; below: to later ones; ring: to itself. ` +
      `Weights over ${this.stated}: ${drawn} of ${count}.`;
  }

  svg() {
    const { paint, matrix, shape, lit } = this, cell = Math.max(16, Math.min(48, shape.cell)), seen = shape;
    this.shape = this.plan(cell, 620); // words must not overlap on paper
    const { top, bottom, rise, ring, font, angle, band, width, height } = this.shape;
    const shapes = lit.map(({ row, column, byte }) => {
      const [from, to] = [this.middle(row), this.middle(column)], { width, opacity } = this.line(byte);
      const y = column < row ? top : bottom, radius = Math.abs(from - to) / 2;
      const path = row === column
        ? `M ${from} ${top} a ${ring} ${ring} 0 1 1 0.01 0`
        : `M ${from} ${y} A ${radius} ${rise(Math.abs(row - column))} 0 0 0 ${to} ${y}`;
      return `<path d="${path}" fill="none" stroke="${this.strong}" stroke-width="${width}" ` +
        `stroke-opacity="${opacity}"/>`;
    });
    for (const [token, word] of matrix.words.rows.entries()) shapes.push(svgText(word, this.middle(token),
      top + (angle ? 6 : band / 2), paint.ink, font, { turn: -angle, anchor: angle ? "end" : "middle" }));
    this.shape = seen;
    return { width, height, font, shapes, about: this.note };
  }

  facts() { // for JSON
    const { matrix: { rows }, lit, threshold } = this;
    const arcs = lit.map(({ row, column, byte }) => ({ row, column, weight: weightOf(byte) }));
    return { tokens: rows, threshold: weightOf(threshold), arcs };
  }
}
