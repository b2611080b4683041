// Attention of one sentence, or its gates and states, drawn into the element that it is given: as a heat map, as a grid
// of all heads, or as arcs. The page's custom properties --panel, --ink, --quiet, --line, --well, --accent colour it.

import { ArcDiagram } from "./arc_diagram.js";
import { Choices } from "./choices.js";
import { Paint, decimal, make, pngOf, saveBlob, short, themeColours, unpack } from "./drawing.js";
import { HeadGrid } from "./head_grid.js";
import { HeatMap } from "./heat_map.js";
import { Matrix, average, largestOf, sameTokens } from "./weights.js";
import { svgPicture } from "./svg.js";

const WIDE = 896; // pixels: text is beside the map from here on
const LOOKS = { map: "Map", grid: "All heads", arcs: "Arcs" };

export class AttentionMap {
  constructor(root, { scales, words, heading = "", onChange = () => {} }) {
    Object.assign(this, { root, scales, words, heading, onChange });
    this.wanted = { kind: "", layer: "", head: "mean", look: "map" };
    Object.assign(this, { row: -1, column: -1, asked: undefined, turn: 0, frame: 0, width: 0, threshold: 0 });
    this.sizes = { map: 0, grid: 0, arcs: 0 }; // 0: what fits
    this.bytes = new Map(); // view -> the promise of its bytes, (heads, rows, columns)
    this.closing = new AbortController();
    const onPick = (row, column) => this.pick(row, column);
    this.looks = {
      map: new HeatMap({ onPick }),
      grid: new HeadGrid({ onOpen: (layer, head) => this.open(layer, head), onPoint: (place) => this.sayHead(place) }),
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

  resolve() { // what of the sentence is shown, and what else could be
    const { views } = this.sentence, { wanted } = this, one = (values, value) => (values.includes(value) ? value : values[0]);
    const kinds = [...new Set(views.map((view) => view.name))], kind = one(kinds, wanted.kind);
    const all = views.filter((view) => view.name === kind), numbers = all.map((view) => String(view.layer));
    const alike = all.every((view) => sameTokens(view.rows, all[0].rows) && sameTokens(view.columns, all[0].columns));
    const mean = alike && all.length > 1 && wanted.layer === "mean", layer = mean ? "mean" : one(numbers, wanted.layer);
    const some = mean ? all : all.filter((view) => String(view.layer) === layer), { rows, columns } = some[0];
    const count = Math.min(...some.map((view) => view.heads)), heads = Array.from({ length: count }, (_, i) => String(i + 1));
    if (count > 1) heads.unshift("mean", "max");
    const several = all.length > 1 || all[0].heads > 1, looks = ["map"];
    if (several) looks.push("grid");
    if (sameTokens(rows, columns)) looks.push("arcs");
    const layers = alike && all.length > 1 ? ["mean", ...numbers] : numbers;
    return { kind, layer, head: one(heads, wanted.head), look: one(looks, wanted.look), all, some,
      kinds, layers, heads, looks };
  }

  async update() {
    const turn = ++this.turn, next = this.resolve(), { kind, layer, head, look, all, some } = next;
    const single = look !== "grid"; // where all heads are shown, none can be chosen but by opening it
    this.groups.kind.offer(next.kinds, kind);
    this.groups.layer.offer(single ? next.layers : [], layer);
    this.groups.head.offer(single ? next.heads : [], head);
    this.groups.look.offer(next.looks, look, (name) => (name === "grid" && all.every((view) => view.heads === 1)
      ? "All layers" : LOOKS[name]));
    for (const view of this.bytes.keys()) if (!all.includes(view)) this.bytes.delete(view);
    const unpacked = await Promise.all((look === "grid" ? all : some).map((view) => this.bytesOf(view)))
      .catch((error) => this.refuse(turn, error));
    if (turn !== this.turn || !unpacked) return false; // something else was chosen meanwhile
    const before = this.matrix, own = look === "grid" ? some.map((view) => unpacked[all.indexOf(view)]) : unpacked;
    this.matrix = new Matrix(some[0], average(some, own, head));
    const { rows, columns } = this.matrix, same = before && sameTokens(before.rows, rows) && sameTokens(before.columns, columns);
    if (before && !same) Object.assign(this, { sizes: { map: 0, grid: 0, arcs: 0 }, threshold: 0, row: -1, column: -1 });
    if (this.asked) Object.assign(this, this.asked);
    this.asked = undefined;
    if (!(this.row < rows.length && this.column < columns.length)) Object.assign(this, { row: -1, column: -1 });
    const which = isNaN(head) ? `, ${head} of ${some[0].heads} heads` : next.heads.length > 1 ? `, head ${head}` : "";
    const where = layer === "mean" ? `mean of ${some.length} layers` : `layer ${layer}`;
    const name = look === "grid" ? `${kind}, all layers and heads` : `${kind}, ${where}${which}`;
    this.shown = { kind, layer, head, look, name, all, unpacked };
    this.draw();
    return true;
  }

  bytesOf(view) {
    if (!this.bytes.has(view)) this.bytes.set(view, unpack(view.weights));
    return this.bytes.get(view);
  }

  refuse(turn, { message }) {
    if (turn === this.turn) this.parts.pair.textContent = message;
  }

  // ── elements ──
  build() {
    const { root, words } = this, part = (tag, className, properties = {}, ...children) =>
      (this.parts[className] = make(tag, { className, ...properties }, ...children));
    const button = (className, text) => part("button", className, { type: "button" }, text);
    const group = (name, label, caption) =>
      (this.groups[name] = new Choices(name, { label, caption, onChoose: (value) => this.change({ [name]: value }) })).element;
    this.parts = {};
    this.groups = {};
    root.classList.add("attention-map");
    part("input", "stretch", { type: "checkbox" });
    part("input", "size", { type: "range" });
    part("input", "threshold", { type: "range", min: 1, max: 128 });
    const caption = make("figcaption", {},
      make("div", {}, "0 ", part("span", "legend", { role: "img", ariaLabel: "Colour scale" }), " ", part("span", "full-weight")),
      make("label", {}, this.parts.stretch, " Stretch colours to the largest"),
      make("label", {}, "Size ", this.parts.size),
      part("label", "over", {}, "Threshold ", this.parts.threshold),
      make("div", { className: "files" }, button("save-svg", "Save SVG"), button("save-png", "Save PNG"),
        button("save-json", "Save JSON")));
    root.append(
      make("div", { className: "controls" }, group("kind", words.kind), group("layer", "Layer", "Layer"),
        group("head", "Head", "Head"), group("look", "View", "View")),
      make("div", { className: "text", translate: false }, part("p", "source", { dir: "auto" }),
        part("p", "output", { dir: "auto" }), part("p", "note")),
      make("div", { className: "readout", translate: false }, part("p", "pair", { role: "status" }), part("p", "most")),
      make("figure", {}, ...Object.values(this.looks).map((look) => look.element), part("p", "stated"),
        part("div", "print"), caption),
      part("div", "lines", { translate: false },
        make("p", { className: "name" }, words.looking), part("p", "words rows", { dir: "auto" }),
        make("p", { className: "name" }, words["looked-at"]), part("p", "words columns", { dir: "auto" })),
      part("details", "numbers", {}, make("summary", {}, "The numbers"),
        make("div", { className: "scroll", tabIndex: 0 }, part("table", "table", { translate: false }))));
    this.lines = { rows: this.parts["words rows"], columns: this.parts["words columns"] };
  }

  listen() {
    const { parts, lines } = this, { signal } = this.closing;
    const on = (element, name, act) => element.addEventListener(name, act, { signal });
    for (const side of ["rows", "columns"]) on(lines[side], "pointerover", ({ target }) => {
      const index = [...lines[side].children].indexOf(target);
      if (index >= 0) this.pick(side === "rows" ? index : -1, side === "rows" ? -1 : index);
    });
    on(parts.stretch, "change", () => this.draw());
    on(parts.size, "input", ({ target }) => ((this.sizes[this.shown.look] = +target.value), this.draw(), this.look.reveal()));
    on(parts.threshold, "input", ({ target }) => ((this.threshold = +target.value), this.draw()));
    on(parts["save-svg"], "click", () => this.save(new Blob([this.svg()], { type: "image/svg+xml" }), ".svg"));
    on(parts["save-png"], "click", async () => this.save(await pngOf(this.svg()), ".png"));
    on(parts["save-json"], "click", () => this.save(new Blob([this.json()], { type: "application/json" }), ".json"));
    on(parts.numbers, "toggle", () => this.tabulate());
    on(globalThis, "resize", () => this.shown && this.draw());
    on(globalThis, "beforeprint", () => this.toPaper(true));
    on(globalThis, "afterprint", () => this.toPaper(false));
    this.sizing = new ResizeObserver(() => this.shown && this.root.clientWidth !== this.width && this.draw());
    this.sizing.observe(this.root);
  }

  remove() { // takes its elements and listeners away
    this.closing.abort();
    this.sizing.disconnect();
    this.root.replaceChildren();
    this.root.classList.remove("attention-map", "wide");
  }

  // ── drawing ──
  get look() {
    return this.looks[this.shown.look];
  }

  themeChanged() { // the custom properties of the root are others now
    if (this.shown) this.draw();
  }

  draw() { // all that does not depend on the chosen square
    const { shown, matrix, parts, root } = this, { name, layer, head, all: views, unpacked } = shown;
    this.width = root.clientWidth;
    root.classList.toggle("wide", this.width >= WIDE);
    for (const look of Object.values(this.looks)) look.element.hidden = look !== this.look;
    const largest = shown.look === "grid" ? Math.max(...unpacked.map(largestOf)) : matrix.largest;
    const full = (parts.stretch.checked && largest) || 255, paint = new Paint(themeColours(root, this.scales), full);
    this.paint = paint;
    this.describe();
    this.look.show({ matrix, views, unpacked, name, layer, head, paint, size: this.sizes[shown.look],
      threshold: this.threshold, row: this.row, column: this.column });
    const [min, max] = this.look.sizes;
    Object.assign(parts.size, { min, max, value: this.look.size });
    parts.over.hidden = shown.look !== "arcs";
    parts.threshold.value = this.looks.arcs.threshold ?? 1;
    parts.stated.textContent = this.look.note ?? "";
    parts.legend.style.background = this.look.legend ?? paint.legend;
    parts["full-weight"].textContent = decimal(full);
    this.say();
  }

  describe() { // words around the map
    const { sentence: { title, output, note }, matrix, parts, lines } = this;
    const texts = { source: title === this.heading ? "" : title, output: output && "→ " + output, note };
    for (const [name, text] of Object.entries(texts)) parts[name].textContent = text;
    for (const side of ["rows", "columns"])
      lines[side].replaceChildren(...matrix[side].map((token) => make("span", {}, token)));
    parts.lines.hidden = this.shown.look === "grid";
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

  // ── the chosen square ──
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

  async change(part) { // by the person
    Object.assign(this.wanted, part);
    if (await this.update()) this.onChange(this.chosen);
  }

  async open(layer, head) {
    await this.change({ layer, head, look: "map" });
    this.looks.map.element.focus();
  }

  sayHead({ label, matrix }) {
    this.parts.pair.classList.remove("hint");
    this.parts.pair.textContent = label[0].toUpperCase() + label.slice(1);
    this.parts.most.textContent = `The largest weight is ${decimal(largestOf(matrix))}. ${HeadGrid.hint}`;
  }

  say() { // describes the chosen square
    const { row, column, matrix, parts, lines, paint } = this, forward = row >= 0;
    const nothing = (row < 0 && column < 0) || this.shown.look === "grid";
    for (const word of this.parts.lines.querySelectorAll(".words [style], .words [class]"))
      for (const name of ["style", "class", "data-weight"]) word.removeAttribute(name);
    parts.pair.classList.toggle("hint", nothing);
    parts.pair.textContent = matrix.bytes.length ? this.look.constructor.hint : "There are no words here.";
    parts.most.replaceChildren();
    if (nothing) return;
    const own = forward ? matrix.rows[row] : matrix.columns[column], others = forward ? matrix.columns : matrix.rows;
    const weights = others.map((_, i) => (forward ? matrix.at(row, i) : matrix.at(i, column)));
    const order = [...weights.keys()].filter((i) => weights[i] > 1).sort((a, b) => weights[b] - weights[a]);
    const pair = [forward ? row : order[0] ?? 0, column >= 0 ? column : order[0] ?? 0], token = (text) => make("bdi", {}, text);
    parts.pair.replaceChildren(token(matrix.rows[pair[0]]), " → ", token(matrix.columns[pair[1]]), " ",
      decimal(matrix.at(...pair)));
    parts.most.append(token(own), ` ${this.words[forward ? "forward" : "back"]} `, order.length ? "" : "nothing over 0.01",
      ...order.slice(0, 5).flatMap((i, n) => [n ? " · " : "", token(others[i]), " ", decimal(weights[i])]));
    for (const i of order) {
      const word = lines[forward ? "columns" : "rows"].children[i];
      Object.assign(word.style, { background: paint.fill(weights[i]), color: paint.inkOn(weights[i]) });
      if (weights[i] >= 13) word.dataset.weight = short(weights[i]);
    }
    for (const [side, index, at] of [["rows", row, pair[0]], ["columns", column, pair[1]]]) {
      const line = lines[side], word = line.children[at], low = word.offsetTop + 2 * word.offsetHeight - line.clientHeight;
      if (index >= 0) word.className = "chosen";
      if (!line.matches(":hover")) line.scrollTop = Math.min(word.offsetTop, Math.max(line.scrollTop, low));
    }
  }

  // ── files and paper ──
  svg() { // what is shown
    const { sentence: { title, note }, shown: { name }, paint } = this, { about, ...picture } = this.look.svg();
    const facts = [note, `full colour at ${decimal(paint.full)}`, about].filter(Boolean).join("; ");
    return svgPicture({ title, name, about: facts, paint, ...picture });
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
