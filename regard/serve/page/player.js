// Buttons to move through steps: first, back, play or pause, forward, last, and a slider; also by keys.

import { make } from "/show/drawing.js";
import { icon } from "./icons.js";

const BEAT = 900; // ms per step

export class Player {
  constructor(onMove) {
    this.onMove = onMove;
    this.at = 0;
    this.count = 0;
    const button = (name, label, act) => {
      const made = make("button", { type: "button", ariaLabel: label, title: label }, icon(name));
      made.addEventListener("click", act);
      return made;
    };
    this.buttons = {
      first: button("first", "First step", () => this.by(-Infinity)),
      back: button("back", "Step back", () => this.by(-1)),
      play: button("play", "Play", () => this.toggle()),
      forward: button("forward", "Step forward", () => this.by(1)),
      last: button("last", "Last step", () => this.by(Infinity)),
    };
    this.slider = make("input", { type: "range", min: 1, ariaLabel: "Step" });
    this.slider.addEventListener("input", () => (this.pause(), this.move(this.slider.valueAsNumber - 1)));
    this.where = make("span", { className: "where" });
    this.element = make(
      "div",
      { className: "player", role: "group", ariaLabel: "Steps" },
      make("div", { className: "row" }, ...Object.values(this.buttons)),
      this.slider,
      this.where,
    );
  }

  show(at, count) {
    if (count !== this.count) this.pause();
    this.count = count;
    this.place(at);
  }

  place(at) {
    this.at = Math.min(this.count - 1, Math.max(0, at));
    Object.assign(this.slider, { max: this.count, value: this.at + 1 });
    this.where.textContent = `Step ${this.at + 1} of ${this.count}`;
    for (const name of ["first", "back"]) this.buttons[name].ariaDisabled = String(this.at === 0);
    for (const name of ["forward", "last"]) this.buttons[name].ariaDisabled = String(this.at === this.count - 1);
    if (this.timer && this.at === this.count - 1) this.pause();
  }

  move(at) {
    this.place(at);
    this.onMove(this.at);
  }

  by(steps) {
    // by the person
    this.pause();
    this.move(this.at + steps);
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.at === this.count - 1) this.move(0);
    this.timer = setInterval(() => this.move(this.at + 1), BEAT);
    this.picture("pause", "Pause");
  }

  pause() {
    clearInterval(this.timer);
    this.timer = 0;
    this.picture("play", "Play");
  }

  picture(name, label) {
    this.buttons.play.replaceChildren(icon(name));
    Object.assign(this.buttons.play, { ariaLabel: label, title: label });
  }

  press(event) {
    // arrow keys and space, where nothing else uses them
    const { target, key } = event;
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || !this.count || event.defaultPrevented) return;
    if (target.closest?.("audio, input, textarea, select, [role=tablist], [role=application], dialog, .scroll")) return;
    if (key === " " && target.closest?.("button, a, summary")) return;
    const act = { ArrowLeft: () => this.by(-1), ArrowRight: () => this.by(1), " ": () => this.toggle() }[key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
