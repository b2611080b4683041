// Attention of one sentence, or its gates and states, drawn into the element that it is given: as a heat map, as a grid
// of all heads, or as arcs. The page's custom properties --page, --panel, --ink, --quiet, --line, --well and --accent
// colour it. What the page has put into the element stays in front.

import { ArcDiagram } from "./arc_diagram.js";
import { Choices } from "./choices.js";
import { Paint, decimal, make, pngOf, saveBlob, themeColours, unpack } from "./drawing.js";
import { HeadGrid } from "./head_grid.js";
import { HeatMap } from "./heat_map.js";
import { Readout } from "./readout.js";
import { select } from "./selection.js";
import { svgPicture } from "./svg.js";
import { Matrix, average, largestOf, sameTokens } from "./weights.js";

const WIDE = 896; // pixels: text is beside the map from here on
const LOOKS = { map: "Map", grid: "All heads", arcs: "Arcs" };

export class AttentionMap {
  constructor(root, { scales, words, heading = "", onChange = () => {} }) { // `heading`: a title not to be repeated
    Object.assign(this, { root, scales, words, heading, onChange });
    this.wanted = { kind: "", layer: "", head: "mean", look: "map" };
    Object.assign(this, { turn: 0, frame: 0, width: 0, asked: undefined });
    this.forget();
    this.bytes = new Map(); // view -> the promise of its bytes, (heads, rows, columns)
    const onPick = (row, column) => this.pick(row, column);
    this.readout = new Readout(words, onPick);
    this.looks = {
      map: new HeatMap({ onPick }),
      grid: new HeadGrid({
        onOpen: (layer, head) => this.open(layer, head),
        onPoint: (place) => this.readout.head(place, HeadGrid.hint),
      }),
      arcs: new ArcDiagram({ onPick }),
    };
    this.build();
    this.listen();
  }

  // ── what is chosen ──
  get chosen() { // {kind, layer, head, look: strings; row, column: numbers, -1 for none}
    const { kind, layer, head, look } = this.shown ?? this.wanted;
    return { kind, layer, head, row: this.row, column: this.column, look };
  }

  async choose(part) { // any part of `chosen`; what does not exist in the sentence becomes what comes first
    for (const name of ["kind", "layer", "head", "look"])
      if (part[name] !== undefined) this.wanted[name] = String(part[name]);
    if (part.row !== undefined || part.column !== undefined)
      this.asked = { row: Number(part.row ?? -1), column: Number(part.column ?? -1) };
    if (this.sentence) await this.update();
  }

  async show(sentence) { // {title, output, note, views: [{name, layer, heads, rows, columns, weights}]}
    if (!this.sentence) this.parts.stretch.checked = HeatMap.stretches(sentence.views[0]);
    this.sentence = sentence;
    await this.update();
  }

  async update() { // returns whether it was drawn: something else may be chosen meanwhile
    const turn = ++this.turn, { sentence } = this, shown = select(sentence, this.wanted), { look, all, some } = shown;
    this.offer(shown);
    for (const view of this.bytes.keys()) if (!all.includes(view)) this.bytes.delete(view);
    const needed = look === "grid" ? all : some, unpacked = await this.unpacked(needed, turn);
    if (turn !== this.turn || !unpacked) return false;
    const own = some.map((view) => unpacked[needed.indexOf(view)]), before = this.matrix;
    this.matrix = new Matrix(some[0], average(some, own, shown.head));
    const { rows, columns } = this.matrix;
    if (before && !(sameTokens(before.rows, rows) && sameTokens(before.columns, columns))) this.forget();
    Object.assign(this, this.asked, { asked: undefined });
    const exists = (at, count) => Number.isInteger(at) && at >= -1 && at < count;
    if (!exists(this.row, rows.length) || !exists(this.column, columns.length))
      Object.assign(this, { row: -1, column: -1 });
    this.shown = { ...shown, unpacked };
    this.describe();
    this.draw();
    return true;
  }

  forget() { // what belongs to the words of one matrix
    Object.assign(this, { row: -1, column: -1, threshold: 0, sizes: { map: 0, grid: 0, arcs: 0 } }); // 0: what fits
  }

  bytesOf(view) {
    if (!this.bytes.has(view)) this.bytes.set(view, unpack(view.weights));
    return this.bytes.get(view);
  }

  async unpacked(views, turn) {
    try {
      return await Promise.all(views.map((view) => this.bytesOf(view)));
    } catch ({ message }) {
      if (turn === this.turn) this.readout.hint(message);
    }
  }

  // ── elements ──
  build() {
    const { root, words, looks, readout } = this;
    const part = (tag, className, properties = {}, ...children) =>
      (this.parts[className] = make(tag, { className, ...properties }, ...children));
    const button = (className, text) => part("button", className, { type: "button" }, text);
    const group = (name, label, caption) => {
      const onChoose = (value) => this.change({ [name]: value });
      return (this.groups[name] = new Choices(name, { label, caption, onChoose })).element;
    };
    this.parts = {};
    this.groups = {};
    root.classList.add("attention-map");
    const legend = [part("span", "legend", { role: "img", ariaLabel: "Colour scale" }), part("span", "full-weight")];
    const caption = make("figcaption", {},
      make("div", {}, "0 ", ...legend),
      make("label", {}, part("input", "stretch", { type: "checkbox" }), " Stretch colours to the largest"),
      make("label", {}, "Size ", part("input", "size", { type: "range" })),
      part("label", "over", {}, "Threshold ", part("input", "threshold", { type: "range", min: 1, max: 128 })),
      make("div", {}, button("save-svg", "Save SVG"), button("save-png", "Save PNG"),
        button("save-json", "Save JSON")));
    root.append(
      make("div", { className: "controls" }, group("kind", words.kind), group("layer", "Layer", "Layer"),
        group("head", "Head", "Head"), group("look", "View", "View")),
      make("div", { className: "text", translate: false }, part("p", "source", { dir: "auto" }),
        part("p", "output", { dir: "auto" }), part("p", "note")),
      readout.element,
      make("figure", {}, ...Object.values(looks).map((look) => look.element), part("p", "stated"),
        part("div", "print"), caption),
      readout.sides,
      part("details", "numbers", {}, make("summary", {}, "The numbers"),
        make("div", { className: "scroll", tabIndex: 0 }, part("table", "table", { translate: false }))));
  }

  listen() {
    const { parts } = this, closing = new AbortController(), { signal } = closing;
    const on = (element, name, act) => element.addEventListener(name, act, { signal });
    on(parts.stretch, "change", () => this.draw());
    on(parts.threshold, "input", ({ target }) => ((this.threshold = +target.value), this.draw()));
    on(parts.size, "input", ({ target }) => {
      this.sizes[this.shown.look] = +target.value;
      this.draw();
      this.look.reveal();
    });
    on(parts["save-svg"], "click", () => this.save(new Blob([this.svg()], { type: "image/svg+xml" }), ".svg"));
    on(parts["save-png"], "click", async () => this.save(await pngOf(this.svg()), ".png"));
    on(parts["save-json"], "click", () => this.save(new Blob([this.json()], { type: "application/json" }), ".json"));
    on(parts.numbers, "toggle", () => this.tabulate());
    on(globalThis, "resize", () => this.shown && this.draw());
    on(globalThis, "beforeprint", () => this.toPaper(true));
    on(globalThis, "afterprint", () => this.toPaper(false));
    const sizing = new ResizeObserver(() => this.shown && this.root.clientWidth !== this.width && this.draw());
    sizing.observe(this.root);
    this.stop = () => (closing.abort(), sizing.disconnect());
  }

  remove() { // takes its elements and listeners away
    this.stop();
    this.turn += 1;
    cancelAnimationFrame(this.frame);
    this.root.replaceChildren();
    this.root.classList.remove("attention-map", "wide");
  }

  offer({ look, looks, kind, kinds, layer, layers, head, heads, all }) {
    const single = look !== "grid"; // where all heads are shown, one is chosen by opening it
    const grid = all.every((view) => view.heads === 1) ? "All layers" : LOOKS.grid;
    this.groups.kind.offer(kinds, kind);
    this.groups.layer.offer(single ? layers : [], layer);
    this.groups.head.offer(single ? heads : [], head);
    this.groups.look.offer(looks, look, (name) => (name === "grid" ? grid : LOOKS[name]));
  }

  // ── drawing ──
  get look() {
    return this.looks[this.shown.look];
  }

  themeChanged() { // the custom properties of the root have other values now
    if (this.shown) this.draw();
  }

  draw() { // all but the words
    const { shown, matrix, parts, root, look } = this, { name, layer, head, all: views, unpacked } = shown;
    this.width = root.clientWidth;
    root.classList.toggle("wide", this.width >= WIDE);
    for (const each of Object.values(this.looks)) each.element.hidden = each !== look;
    const largest = shown.look === "grid" ? Math.max(...unpacked.map(largestOf)) : matrix.largest;
    const full = (parts.stretch.checked && largest) || 255, paint = new Paint(themeColours(root, this.scales), full);
    this.paint = paint;
    look.show({ matrix, views, unpacked, name, layer, head, paint, size: this.sizes[shown.look],
      threshold: this.threshold, row: this.row, column: this.column });
    const [min, max] = look.sizes;
    Object.assign(parts.size, { min, max, value: look.size });
    parts.over.hidden = shown.look !== "arcs";
    parts.threshold.value = this.looks.arcs.threshold ?? 1;
    parts.stated.textContent = look.note ?? "";
    parts.legend.style.background = look.legend ?? paint.legend;
    parts["full-weight"].textContent = decimal(full);
    this.say();
  }

  describe() { // words around the map
    const { sentence: { title, output, note }, parts, readout } = this;
    const texts = { source: title === this.heading ? "" : title, output: output && "→ " + output, note };
    for (const [name, text] of Object.entries(texts)) parts[name].textContent = text;
    readout.show(this.matrix);
    readout.sides.hidden = this.shown.look === "grid";
    this.tabulate();
  }

  tabulate() {
    const { matrix, parts } = this, heading = (scope) => (token) => make("th", { scope, dir: "auto" }, token);
    const cells = (row) => matrix.columns.map((_, column) => make("td", {}, decimal(matrix.at(row, column))));
    parts.numbers.hidden = matrix.bytes.length > 2500 || this.shown.look === "grid";
    if (parts.numbers.hidden || !parts.numbers.open) return;
    parts.table.replaceChildren(make("tr", {}, make("td"), ...matrix.columns.map(heading("col"))),
      ...matrix.rows.map((token, row) => make("tr", {}, heading("row")(token), ...cells(row))));
  }

  say() {
    const nothing = (this.row < 0 && this.column < 0) || this.shown.look === "grid";
    if (!nothing) this.readout.say(this.row, this.column, this.paint);
    else this.readout.hint(this.matrix.bytes.length ? this.look.constructor.hint : "There are no words here.");
  }

  // ── what a person does ──
  pick(row, column) { // drawn once a frame, however fast the pointer moves
    if (row === this.row && column === this.column) return;
    Object.assign(this, { row, column });
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      this.look.light(this.row, this.column);
      this.say();
      this.onChange(this.chosen);
    });
  }

  async change(part) {
    Object.assign(this.wanted, part);
    if (await this.update()) this.onChange(this.chosen);
  }

  async open(layer, head) {
    await this.change({ layer, head, look: "map" });
    this.looks.map.element.focus();
  }

  // ── files and paper ──
  svg() { // what is shown
    const { sentence: { title, note }, shown: { name }, paint } = this, { about, ...picture } = this.look.svg();
    const notes = [note, `Full colour at ${decimal(paint.full)}.`, about];
    return svgPicture({ title, name, about: notes, paint, ...picture });
  }

  json() {
    const { sentence: { title, output, note }, shown: { name, kind, layer, head, look } } = this;
    const which = look === "grid" ? { kind } : { kind, layer, head };
    return JSON.stringify({ title, output, note, name, ...which, ...this.look.facts() });
  }

  save(blob, ending) {
    saveBlob(blob, this.shown.name, ending);
  }

  toPaper(on) { // dark ink on white, the whole picture as shapes
    if (!this.shown) return;
    this.root.classList.toggle("on-paper", on);
    this.draw();
    const drawn = on ? [new DOMParser().parseFromString(this.svg(), "image/svg+xml").documentElement] : [];
    this.parts.print.replaceChildren(...drawn);
  }
}
