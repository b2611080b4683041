// A picture with its words and, for each word, where each head looked: bright where the weight is largest.

import { Choices } from "./choices.js";
import { make, saveBlob, unpack } from "./drawing.js";

const LARGE = 960; // pixels of the large picture's width
const SMALL = 192;

export class PictureView {
  constructor(root, { dark, darkest, onChange = () => {} }) {
    Object.assign(this, { root, dark, darkest, onChange, turn: 0, word: 0 });
    this.wanted = { view: "0", head: "mean", smooth: true };
    this.bytes = new Map(); // view -> the promise of its bytes, (heads, words, rows, columns)
    this.build();
  }

  // ── what is chosen ──
  get chosen() { // {view: a number, head: "mean", "1", "2", …, word: a number, smooth: true or false}
    const { view, head } = this.shown ?? this.wanted;
    return { view: Number(view), head, word: this.word, smooth: this.wanted.smooth };
  }

  async choose(part) { // any part of `chosen`; what does not exist in the picture becomes what comes first
    if (part.word !== undefined) this.word = Number(part.word);
    if (part.smooth !== undefined) this.wanted.smooth = Boolean(part.smooth);
    for (const name of ["view", "head"]) if (part[name] !== undefined) this.wanted[name] = String(part[name]);
    if (this.picture) await this.update();
  }

  async show(picture) { // {title, note, words, picture, size, views: [{name, heads, rows, columns, largest, weights}]}
    this.picture = picture;
    await this.update();
  }

  async update() {
    const turn = ++this.turn, { picture, wanted } = this, views = Object.keys(picture.views);
    const one = (values, value) => (values.includes(value) ? value : values[0]), key = one(views, wanted.view);
    const view = picture.views[key], heads = Array.from({ length: view.heads }, (_, h) => String(h + 1));
    if (heads.length > 1) heads.unshift("mean");
    const head = one(heads, wanted.head);
    this.groups.view.offer(views, key, (number) => picture.views[number].name);
    this.groups.head.offer(heads, head);
    this.parts.smooth.checked = wanted.smooth;
    for (const kept of this.bytes.keys()) if (!picture.views.includes(kept)) this.bytes.delete(kept);
    const loaded = await this.loaded(view, picture, turn);
    if (turn !== this.turn || !loaded) return false; // something else was chosen meanwhile
    const [bytes, image] = loaded;
    if (!(this.word >= 0 && this.word < picture.words.length)) this.word = 0;
    const spotlights = picture.words.map((_, word) => spotlight(picture, view, bytes, word, head));
    this.shown = { picture, view: key, head, image, spotlights };
    this.draw();
    return true;
  }

  bytesOf(view) {
    if (!this.bytes.has(view)) this.bytes.set(view, unpack(view.weights));
    return this.bytes.get(view);
  }

  async imageOf({ picture }) {
    const image = make("img", { src: picture });
    await image.decode();
    return image;
  }

  async loaded(view, picture, turn) {
    try {
      return await Promise.all([this.bytesOf(view), this.imageOf(picture)]);
    } catch ({ message }) {
      if (turn === this.turn) this.parts.caption.textContent = message;
    }
  }

  // ── elements ──
  build() {
    const part = (tag, className, properties = {}, ...children) =>
      (this.parts[className] = make(tag, { className, ...properties }, ...children));
    const group = (name, label) => (this.groups[name] = new Choices(name,
      { label, caption: label, onChoose: (value) => this.change({ [name]: value }) })).element;
    this.parts = {};
    this.groups = {};
    this.root.classList.add("picture-view");
    part("input", "smooth", { type: "checkbox", checked: true });
    this.root.append(
      make("div", { className: "controls" }, group("view", "View"), group("head", "Head"),
        make("label", {}, this.parts.smooth, " Smooth")),
      part("div", "words", { role: "group", ariaLabel: "Words", translate: false }),
      make("div", { className: "pictures" },
        make("figure", {}, part("canvas", "large", { role: "img" }), part("figcaption", "caption", { role: "status" }),
          part("button", "save-png", { type: "button" }, "Save PNG")),
        make("div", {}, part("div", "strip", { role: "group", ariaLabel: "Every word", translate: false }),
          part("p", "note"))));
    this.parts.smooth.addEventListener("change", ({ target }) => this.change({ smooth: target.checked }));
    this.parts["save-png"].addEventListener("click", () =>
      this.parts.large.toBlob((blob) => saveBlob(blob, this.parts.caption.textContent, ".png")));
    for (const name of ["words", "strip"]) {
      for (const event of ["click", "pointerover"]) this.parts[name].addEventListener(event, ({ target }) => {
        const word = [...this.parts[name].children].findIndex((button) => button.contains(target));
        if (word >= 0) this.pick(word);
      });
      this.parts[name].addEventListener("keydown", (event) => this.press(event, this.parts[name]));
    }
  }

  remove() { // takes its elements away
    this.root.replaceChildren();
    this.root.classList.remove("picture-view");
  }

  // ── drawing ──
  draw() {
    const { picture, spotlights } = this.shown, { parts } = this, shape = picture.size[0] / picture.size[1];
    const button = (word) => make("button", { type: "button", tabIndex: -1 }, picture.words[word]);
    const canvas = (width) => make("canvas", { width, height: Math.round(width * shape) });
    parts.words.replaceChildren(...picture.words.map((_, word) => button(word)));
    parts.strip.replaceChildren(...spotlights.map((each, word) => {
      const small = button(word);
      small.prepend(this.light(canvas(SMALL), each));
      return small;
    }));
    Object.assign(parts.large, { width: LARGE, height: Math.round(LARGE * shape) });
    parts.note.textContent = picture.note;
    this.drawWord();
  }

  drawWord() { // all that depends on the chosen word
    const { picture, spotlights, view } = this.shown, { parts, word } = this;
    for (const group of [parts.words, parts.strip]) for (const [at, button] of [...group.children].entries()) {
      button.ariaPressed = String(at === word);
      button.tabIndex = at === word ? 0 : -1;
    }
    if (!spotlights.length) return;
    this.light(parts.large, spotlights[word]);
    parts.caption.textContent =
      `“${picture.words[word]}”: ${picture.views[view].name}; bright at ${spotlights[word].most.toFixed(3)}`;
    parts.large.ariaLabel = parts.caption.textContent;
  }

  light(canvas, { shares, rows, columns }) { // the picture, darker the smaller the share
    const context = canvas.getContext("2d"), small = make("canvas", { width: columns, height: rows });
    const shadow = small.getContext("2d"), cells = shadow.createImageData(columns, rows);
    shares.forEach((share, place) =>
      cells.data.set([...this.dark, Math.round(255 * this.darkest * (1 - share))], 4 * place));
    shadow.putImageData(cells, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.shown.image, 0, 0, canvas.width, canvas.height);
    Object.assign(context, { imageSmoothingEnabled: this.wanted.smooth, imageSmoothingQuality: "high" });
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    return canvas;
  }

  // ── choosing ──
  pick(word) {
    if (word === this.word) return;
    this.word = word;
    this.drawWord();
    this.onChange(this.chosen);
  }

  press(event, group) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.pick(Math.min(this.shown.picture.words.length - 1, Math.max(0, this.word + by)));
    group.children[this.word]?.focus();
  }

  async change(part) { // by the person
    Object.assign(this.wanted, part);
    if (await this.update()) this.onChange(this.chosen);
  }
}

function spotlight({ words }, view, bytes, word, head) { // for each place its share of the largest weight
  const size = view.rows * view.columns, sums = new Float64Array(size), { heads, rows, columns } = view;
  for (let h = 0; h < heads; h++) {
    if (head !== "mean" && Number(head) !== h + 1) continue;
    const from = (h * words.length + word) * size, largest = view.largest[h][word];
    for (let place = 0; place < size; place++) sums[place] += bytes[from + place] * largest;
  }
  const most = Math.max(...sums) || 1;
  return { shares: sums.map((sum) => sum / most), most: most / 255 / (head === "mean" ? heads : 1), rows, columns };
}
