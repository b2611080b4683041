// A few inputs of the run's own validation data, to try it with.

import { make } from "/show/drawing.js";
import { get } from "./api.js";

const kept = new Map(); // run -> the promise of its examples

export function examplesOf(name) {
  if (!kept.has(name))
    kept.set(
      name,
      get(`/v1/runs/${encodeURIComponent(name)}/examples`).then(
        ({ examples }) => examples,
        () => [],
      ),
    );
  return kept.get(name);
}

export class Tries {
  constructor(onPick) {
    this.onPick = onPick;
    this.list = make("div", { className: "row", translate: false });
    this.element = make(
      "div",
      { className: "tries", role: "group", ariaLabel: "Examples", hidden: true },
      make("span", { className: "quiet" }, "Try one:"),
      this.list,
    );
  }

  async show(name, isWanted) {
    // `isWanted` says whether there is room for them, now and when they are there
    if (this.run !== name) this.list.replaceChildren();
    this.run = name;
    this.isWanted = isWanted;
    const examples = await examplesOf(name);
    if (this.run !== name) return;
    if (!this.list.children.length) this.list.append(...examples.map((each, at) => this.button(each, at)));
    this.update();
  }

  update() {
    this.element.hidden = !this.list.children.length || !this.isWanted();
  }

  button(example, at) {
    const name = `Example ${at + 1}`;
    const made = make("button", { type: "button", className: example.picture ? "thumbnail" : "" });
    if (example.picture) made.append(make("img", { src: example.picture, alt: name }));
    else if (example.recording) made.append(name);
    else made.append(make("span", { dir: "auto" }, example.replace(/\s*\t\s*/g, " | ")));
    made.addEventListener("click", () => this.onPick(example, at));
    return made;
  }
}
