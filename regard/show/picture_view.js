// A picture with its words and, for each word, where each head looked: bright where the weight is largest.

import { make, saveBlob } from "./drawing.js";
import { WordsView } from "./words_view.js";

const LARGE = 960; // pixels of the large picture's width
const SMALL = 192;

export class PictureView extends WordsView {
  constructor(root, { dark, darkest, onChange }) {
    super(root, "picture-view", { onChange });
    Object.assign(this, { dark, darkest });
    this.wanted.smooth = true;
    this.build();
  }

  get chosen() { // {view, head, word, smooth: true or false}
    return { ...super.chosen, smooth: this.wanted.smooth };
  }

  async choose(part) {
    if (part.smooth !== undefined) this.wanted.smooth = Boolean(part.smooth);
    await super.choose(part);
  }

  async load({ picture }) { // what `show` takes has also: picture, size
    const image = make("img", { src: picture });
    await image.decode();
    return image;
  }

  build() {
    this.part("input", "smooth", { type: "checkbox", checked: true });
    this.root.append(
      make("div", { className: "controls" }, this.group("view", "View"), this.group("head", "Head"),
        make("label", {}, this.parts.smooth, " Smooth")),
      this.part("div", "words", { role: "group", ariaLabel: "Words", translate: false }),
      make("div", { className: "pictures" },
        make("figure", {}, this.part("canvas", "large", { role: "img" }),
          this.part("figcaption", "caption", { role: "status" }),
          this.part("button", "save-png", { type: "button" }, "Save PNG")),
        make("div", {}, this.part("div", "strip", { role: "group", ariaLabel: "Every word", translate: false }),
          this.part("p", "note"))));
    this.parts.smooth.addEventListener("change", ({ target }) => this.change({ smooth: target.checked }));
    this.parts["save-png"].addEventListener("click", () =>
      this.parts.large.toBlob((blob) => saveBlob(blob, this.parts.caption.textContent, ".png")));
    for (const name of ["words", "strip"]) this.pickBy(this.parts[name]);
  }

  // ── drawing ──
  draw() {
    const { subject, lights } = this.shown, { parts } = this, shape = subject.size[0] / subject.size[1];
    const canvas = (width) => make("canvas", { width, height: Math.round(width * shape) });
    parts.smooth.checked = this.wanted.smooth;
    parts.words.replaceChildren(...subject.words.map((_, word) => this.wordButton(word)));
    parts.strip.replaceChildren(...lights.map((each, word) => {
      const small = this.wordButton(word);
      small.prepend(this.light(canvas(SMALL), each));
      return small;
    }));
    Object.assign(parts.large, { width: LARGE, height: Math.round(LARGE * shape) });
    parts.note.textContent = subject.note;
    this.drawWord();
  }

  drawWord() { // all that depends on the chosen word
    const { subject, lights, view } = this.shown, { parts, word } = this;
    this.mark(parts.words, parts.strip);
    if (!lights.length) return;
    this.light(parts.large, lights[word]);
    parts.caption.textContent =
      `“${subject.words[word]}”: ${subject.views[view].name}; bright at ${lights[word].most.toFixed(3)}`;
    parts.large.ariaLabel = parts.caption.textContent;
  }

  light(canvas, { shares, rows, columns }) { // the picture, darker the smaller the share
    const context = canvas.getContext("2d"), small = make("canvas", { width: columns, height: rows });
    const shadow = small.getContext("2d"), cells = shadow.createImageData(columns, rows);
    shares.forEach((share, place) =>
      cells.data.set([...this.dark, Math.round(255 * this.darkest * (1 - share))], 4 * place));
    shadow.putImageData(cells, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.shown.more, 0, 0, canvas.width, canvas.height);
    Object.assign(context, { imageSmoothingEnabled: this.wanted.smooth, imageSmoothingQuality: "high" });
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    return canvas;
  }
}
