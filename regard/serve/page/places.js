// The places of a picture, or the moments of a recording, that each step attended to: the weights of /v1/steps on what
// the model reads.

import { make } from "/show/drawing.js";
import { PictureView } from "/show/picture_view.js";
import { SoundView } from "/show/sound_view.js";
import { post } from "./api.js";
import { SOUND, SPOTLIGHT } from "./palette.js";

export class Places {
  constructor(onPick) {
    this.element = make("div", { hidden: true });
    this.onPick = onPick;
    this.read = new Map(); // what was given -> the picture or the recording, as the model reads it
    addEventListener("themechange", () => this.view?.themeChanged?.());
  }

  async ready({ grid, steps, text }, run, input) {
    const isSound = run.reads === "recording";
    this.element.hidden = !steps[0]?.attention || !(isSound ? text : grid);
    if (this.element.hidden) return;
    const subject = await this.subjectOf(run, input, isSound ? ["seconds", "spectrogram", "wav", "note"] : ["picture", "size"]);
    const [rows, columns] = grid ?? [1, steps[0].attention.length];
    const largest = steps.map(({ attention }) => Math.max(...attention)),
      weights = new Uint8Array(steps.length * rows * columns);
    steps.forEach(({ attention }, word) =>
      attention.forEach(
        (weight, place) => (weights[word * rows * columns + place] = Math.round((255 * weight) / (largest[word] || 1))),
      ),
    );
    await this.viewOf(isSound).show({
      title: "",
      note: "",
      times: null,
      ...subject,
      words: steps.map((step) => step.chosen.token),
      views: [{ name: "mean of all heads", heads: 1, rows, columns, stride: subject.stride, largest: [largest], weights }],
    });
  }

  viewOf(isSound) {
    if (this.isSound !== isSound) this.view?.remove();
    if (this.isSound !== isSound) this.view = undefined;
    this.isSound = isSound;
    const onChange = ({ word }) => this.onPick(word);
    return (this.view ??= isSound
      ? new SoundView(this.element, { ...SOUND, onChange })
      : new PictureView(this.element, { ...SPOTLIGHT, onChange }));
  }

  async subjectOf(run, input, names) {
    const key = `${run.name} ${input[run.reads]}`;
    if (!this.read.has(key)) {
      const found = await post("/v1/look", { run: run.name, input });
      this.read.clear();
      this.read.set(key, {
        ...Object.fromEntries(names.map((name) => [name, found[name]])),
        stride: found.views[0].stride,
      });
    }
    return this.read.get(key);
  }

  at(step) {
    if (!this.element.hidden) this.view.choose({ word: step });
  }
}
