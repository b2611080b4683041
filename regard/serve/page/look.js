// The answer of /v1/look, drawn by the components that `look --html` uses too; what is chosen in it is in the address.

import { AttentionMap } from "/show/attention_map.js";
import { make, saveBlob } from "/show/drawing.js";
import { PictureView } from "/show/picture_view.js";
import { SoundView } from "/show/sound_view.js";
import { address } from "./address.js";
import { SCALES, SOUND, SPOTLIGHT, WORDS } from "./palette.js";

const PARTS = ["kind", "layer", "head", "look", "row", "column"];
const WORDS_PARTS = ["view", "head", "word"]; // of a picture or a recording
const UNCHOSEN = { row: -1, column: -1, word: 0, view: 0, head: "mean", look: "map" };

export class Look {
  constructor(element, { words = WORDS, remember = true } = {}) {
    Object.assign(this, { element, words, remember });
    addEventListener("themechange", () => (this.map ?? this.view)?.themeChanged?.());
  }

  async show(found) {
    const form = ["picture", "spectrogram"].find((name) => name in found) ?? "map";
    if (this.form !== form) this.clear();
    this.form = form;
    const parts = form === "map" ? PARTS : WORDS_PARTS,
      asked = this.remember ? this.asked(parts) : {};
    const onChange = (chosen) =>
      this.remember &&
      address.set(
        Object.fromEntries(
          parts.map((name) => [name, String(chosen[name]) === String(UNCHOSEN[name]) ? "" : chosen[name]]),
        ),
      );
    if (form === "map") {
      this.map ??= new AttentionMap(this.root(), { scales: SCALES, words: this.words, heading: found.title, onChange });
      this.map.heading = found.title;
    } else if (form === "picture") this.view ??= new PictureView(this.root(), { ...SPOTLIGHT, onChange });
    else this.view ??= new SoundView(this.root(), { ...SOUND, onChange });
    const drawing = this.map ?? this.view;
    await drawing.choose(asked);
    await drawing.show(found);
    if (form !== "map") this.saveJson(found);
    this.element.dataset.drawn = Math.round(performance.now());
  }

  asked(parts) {
    const found = parts.filter((name) => address.get(name)).map((name) => [name, address.get(name)]);
    return Object.fromEntries(found);
  }

  root() {
    const root = make("div");
    this.element.replaceChildren(root);
    return root;
  }

  saveJson(found) {
    if (this.json) this.json.remove();
    this.json = make("button", { type: "button" }, "Save JSON");
    this.json.addEventListener("click", () =>
      saveBlob(new Blob([JSON.stringify(found)], { type: "application/json" }), found.title || this.form, ".json"),
    );
    this.element.append(this.json);
  }

  clear() {
    (this.map ?? this.view)?.remove();
    this.map = this.view = this.form = undefined;
    this.element.replaceChildren();
    delete this.element.dataset.drawn;
  }
}
