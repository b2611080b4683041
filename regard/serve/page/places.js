// The places of a picture that each step attended to: the weights of /v1/steps on the picture as the model reads it.

import { make } from "/show/drawing.js";
import { PictureView } from "/show/picture_view.js";
import { post } from "./api.js";
import { SPOTLIGHT } from "./palette.js";

export class Places {
  constructor(onPick) {
    this.element = make("div", { hidden: true });
    this.onPick = onPick;
    this.pictures = new Map(); // what was given -> {picture, size}, as the model reads it
  }

  async ready({ grid, steps }, run, input) {
    this.element.hidden = !grid;
    if (!grid) return;
    const picture = await this.pictureOf(run, input),
      [rows, columns] = grid;
    const largest = steps.map(({ attention }) => Math.max(...attention)),
      weights = new Uint8Array(steps.length * rows * columns);
    steps.forEach(({ attention }, word) =>
      attention.forEach(
        (weight, place) => (weights[word * rows * columns + place] = Math.round((255 * weight) / (largest[word] || 1))),
      ),
    );
    this.view ??= new PictureView(this.element, { ...SPOTLIGHT, onChange: ({ word }) => this.onPick(word) });
    await this.view.show({
      ...picture,
      title: "",
      note: "",
      words: steps.map((step) => step.chosen.token),
      views: [{ name: "mean of all heads", heads: 1, rows, columns, largest: [largest], weights }],
    });
  }

  async pictureOf(run, input) {
    const key = `${run.name} ${input.picture}`;
    if (!this.pictures.has(key)) {
      const { picture, size } = await post("/v1/look", { run: run.name, input });
      this.pictures.clear();
      this.pictures.set(key, { picture, size });
    }
    return this.pictures.get(key);
  }

  at(step) {
    if (!this.element.hidden) this.view.choose({ word: step });
  }
}
