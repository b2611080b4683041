// The settings of decoding, those that the chosen way of decoding uses; only what differs from the run is in the link.

import { make } from "/show/drawing.js";
import { Choices } from "/show/choices.js";
import { address } from "./address.js";

const FIELDS = {
  // label, smallest, largest, step
  beam: ["Beam size", 1, 16, 1],
  n_best: ["Outputs (n-best)", 1, 16, 1],
  length_penalty: ["Length penalty", 0, 5, 0.1],
  temperature: ["Temperature", 0.05, 5, 0.05],
  top_k: ["Top-k (0: all)", 0, 100000, 1],
  top_p: ["Top-p", 0.01, 1, 0.01],
  seed: ["Seed", 0, 2147483647, 1],
  min_length: ["Fewest tokens", 0, 4096, 1],
  max_length: ["Most tokens (0: automatic)", 0, 4096, 1],
  no_repeat: ["Never repeat n tokens (0: may)", 0, 100, 1],
};
export const SETTINGS = Object.keys(FIELDS);
const WAYS = {
  search: ["beam", "n_best", "length_penalty", "min_length", "max_length", "no_repeat"],
  sample: ["temperature", "top_k", "top_p", "seed", "n_best", "min_length", "max_length", "no_repeat"],
};
const USUAL = 5; // outputs that are shown beside the best one, if the beam has them

export class Settings {
  constructor(onChange) {
    this.inputs = {};
    this.fields = make("div", { className: "fields" });
    this.way = new Choices("way", { label: "Way of decoding", onChoose: (way) => this.choose(way) });
    this.reset = make("button", { type: "button", className: "plain" }, "Back to the run’s own");
    this.stated = make("span", { className: "quiet" });
    this.element = make(
      "details",
      { className: "settings choosing" },
      make("summary", {}, "Decoding ", this.stated),
      this.way.element,
      this.fields,
      this.reset,
    );
    this.onChange = onChange;
    this.fields.addEventListener("input", ({ target }) => this.change(target));
    this.reset.addEventListener("click", () => this.forget());
  }

  show(run, hidden = []) {
    // the run's own settings, and those of the address
    this.own = run?.can.includes("write") ? run.decoding : null;
    this.hidden = hidden;
    this.element.hidden = !this.own || !this.names.length;
    if (this.own) this.draw();
  }

  get sampled() {
    const asked = address.get("sample");
    return asked ? asked === "true" : this.own.sample;
  }

  get names() {
    return WAYS[this.sampled ? "sample" : "search"].filter((name) => name in this.own && !this.hidden.includes(name));
  }

  draw() {
    this.way.offer(["search", "sample"], this.sampled ? "sample" : "search", (way) =>
      way === "sample" ? "Sampling" : "Beam search",
    );
    const shown = this.names.join();
    if (this.shown !== shown) this.fields.replaceChildren(...this.names.map((name) => this.field(name)));
    this.shown = shown;
    for (const name of this.names)
      if (this.inputs[name] !== document.activeElement) this.inputs[name].value = this.value(name);
    this.state();
  }

  field(name) {
    const [label, min, max, step] = FIELDS[name],
      id = `setting-${name}`;
    this.inputs[name] = make("input", {
      type: "number",
      id,
      name,
      min,
      max,
      step,
      required: true,
      inputMode: "decimal",
    });
    return make("div", {}, make("label", { htmlFor: id }, label), this.inputs[name]);
  }

  value(name) {
    return address.number(name, name === "n_best" ? this.outputs : this.own[name]);
  }

  get outputs() {
    // as many as the beam has, up to a few; one sample
    if (this.sampled) return this.own.sample ? this.own.n_best : 1;
    return Math.min(this.value("beam"), Math.max(USUAL, this.own.n_best));
  }

  state() {
    const { sampled } = this,
      part = (name, text) => (this.names.includes(name) ? [`${text} ${this.value(name)}`] : []);
    const shown = sampled ? [...part("temperature", "temperature"), ...part("seed", "seed")] : part("beam", "beam");
    this.stated.textContent = ["·", sampled ? "sampling" : "search", ...shown]
      .join(" ")
      .replace("· search beam", "· beam");
    this.reset.hidden = !Object.keys(FIELDS)
      .concat("sample")
      .some((name) => address.get(name));
  }

  change(input) {
    if (!input.reportValidity()) return;
    const value = input.valueAsNumber,
      { name } = input;
    address.set({ [name]: value === (name === "n_best" ? this.outputs : this.own[name]) ? "" : value });
    if (!this.sampled && name === "n_best" && value > this.value("beam")) address.set({ beam: value });
    if (!this.sampled && name === "beam" && value < this.value("n_best")) address.set({ n_best: "" });
    this.draw();
    this.onChange();
  }

  choose(way) {
    const sample = way === "sample";
    address.set({ sample: sample === this.own.sample ? "" : String(sample), beam: "", n_best: "" });
    this.draw();
    this.onChange();
  }

  forget() {
    address.set(Object.fromEntries([...SETTINGS, "sample"].map((name) => [name, ""])));
    this.draw();
    this.onChange();
  }

  get values() {
    // what /v1/predict takes
    if (!this.own) return {};
    const found = Object.fromEntries(this.names.map((name) => [name, this.value(name)]));
    return { ...found, sample: this.sampled, ...(this.sampled ? { beam: 1 } : {}) };
  }
}
