// Every head of every layer as a small map. If sentences are long, a pixel is the largest weight of a block.

import { make, weightOf } from "./drawing.js";
import { largestOf, oneHead, shrunk } from "./weights.js";
import { svgText, xml } from "./svg.js";

export class HeadGrid {
  static hint = "Click a small map to open it, or step into the grid and use the arrow keys and Enter.";

  constructor({ onOpen, onPoint }) {
    this.element = make("div", { className: "box heads", role: "grid" });
    this.sizes = [32, 480]; // of a small map
    this.element.addEventListener("click", ({ target }) => {
      const place = this.placeOf(target);
      if (place) onOpen(place.layer, place.head);
    });
    for (const name of ["focusin", "pointerover"]) this.element.addEventListener(name, ({ target }) => {
      const place = this.placeOf(target);
      if (place) onPoint({ label: place.label, largest: largestOf(place.matrix) });
    });
    this.element.addEventListener("keydown", (event) => this.press(event));
  }

  placeOf(target) {
    return this.places.find(({ button }) => button.contains(target));
  }

  show({ views, unpacked, name, paint, size, layer, head }) { // `size` 0: as large as fits
    const heads = Math.max(...views.map((view) => view.heads)), tallest = Math.max(300, innerHeight * 0.78);
    Object.assign(this, { views, unpacked, paint });
    this.size = size || this.fitting(views[0], views.length, heads, tallest);
    this.element.ariaLabel = `All heads: ${name}. ${views.length} layers, ${heads} heads.`;
    this.element.style.setProperty("--columns", heads + 1);
    this.element.style.maxHeight = tallest + "px";
    this.places = views.flatMap((view, row) =>
      Array.from({ length: view.heads }, (_, h) => this.place(view, unpacked[row], row, h + 1)));
    const names = heads > 1 ? Array.from({ length: heads }, (_, h) => `Head ${h + 1}`) : [];
    const header = (role) => (text) => make("span", { role }, text);
    const focused = this.element.contains(document.activeElement);
    const rows = views.map((view, row) => make("div", { role: "row" },
      header("rowheader")(`Layer ${view.layer}`), ...this.places.filter((place) => place.row === row)
        .map(({ button }) => make("div", { role: "gridcell" }, button))));
    this.element.replaceChildren(make("div", { role: "row" }, ...["", ...names].map(header("columnheader"))), ...rows);
    const current = this.places.find((place) => place.layer === layer && place.head === head);
    if (current) current.button.ariaCurrent = "true";
    for (const { button } of this.places) button.tabIndex = -1;
    (current ?? this.places[0]).button.tabIndex = 0;
    if (focused) (current ?? this.places[0]).button.focus();
  }

  fitting({ rows, columns }, layers, heads, tallest) { // the longer side of a small map, so that all of them are seen
    const longer = Math.max(rows.length, columns.length), beside = 64, above = 32, between = 14;
    const high = ((tallest - above) / layers - between) * (longer / rows.length);
    const wide = ((this.element.clientWidth - beside) / heads - between) * (longer / columns.length);
    return Math.floor(Math.max(56, Math.min(480, high, wide))) || 56;
  }

  place(view, bytes, row, head) {
    const matrix = oneHead(view, bytes, head), label = `layer ${view.layer}, head ${head}`;
    const most = this.size * devicePixelRatio; // with more pixels than that, thin lines would be lost
    const { bytes: pixels, width, height, block } = shrunk(matrix, view.rows.length, view.columns.length, most);
    const canvas = this.paint.picture(pixels, width, height), longer = Math.max(width, height);
    for (const [side, length] of [["width", width], ["height", height]])
      canvas.style[side] = Math.max(12, Math.round((this.size * length) / longer)) + "px";
    const button = make("button", { type: "button", ariaLabel: label }, canvas);
    return { layer: String(view.layer), head: String(head), row, label, matrix, block, canvas, button };
  }

  light() {} // a row or a column is chosen of one map

  reveal() {}

  press(event) { // Enter is a click on the button
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const here = this.placeOf(event.target);
    if (!step || !here || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = this.places.find(({ row, head }) => row === here.row + step[0] && +head === +here.head + step[1]);
    if (!next) return;
    here.button.tabIndex = -1;
    next.button.tabIndex = 0;
    next.button.focus();
  }

  // ── files ──
  svg() { // the small maps as they are on the screen
    const gap = 10, font = 12, side = this.size + gap, left = 60, top = 24;
    const shapes = this.places.flatMap(({ canvas, row, head }) => {
      const x = left + (head - 1) * side, y = top + row * side, [width, height] = ["width", "height"].map(
        (name) => parseFloat(canvas.style[name]));
      return [`<image href="${xml(canvas.toDataURL())}" x="${x}" y="${y}" width="${width}" height="${height}" ` +
        `preserveAspectRatio="none" image-rendering="pixelated"/>`];
    });
    const heads = Math.max(...this.views.map((view) => view.heads));
    for (let h = 0; h < heads; h++)
      shapes.push(svgText(`Head ${h + 1}`, left + h * side, top - 10, this.paint.quiet, font));
    for (const [row, { layer }] of this.views.entries()) shapes.push(svgText(`Layer ${layer}`, left - 8,
      top + row * side + font / 2, this.paint.quiet, font, { anchor: "end" }));
    return { width: left + heads * side, height: top + this.views.length * side, font, shapes, about: this.note };
  }

  get note() {
    const block = Math.max(...this.places.map((place) => place.block));
    return block > 1 ? `Each pixel is the largest of ${block} × ${block} weights.` : "";
  }

  facts() { // for JSON
    return { views: this.places.map(({ layer, head, matrix, row }) => {
      const { rows, columns } = this.views[row], count = columns.length;
      const cells = (r) => matrix.subarray(r * count, (r + 1) * count);
      return { layer: +layer, head: +head, rows, columns, weights: rows.map((_, r) => Array.from(cells(r), weightOf)) };
    }) };
  }
}
