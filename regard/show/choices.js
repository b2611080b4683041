// A group of radio buttons. Each group is a form of its own, so that groups of one name do not disturb one another.

import { make } from "./drawing.js";

export class Choices {
  constructor(name, { label, caption = "", onChoose }) {
    this.name = name;
    this.buttons = make("div", { className: "choices" });
    this.element = make("form", { className: name, role: "radiogroup", ariaLabel: label, hidden: true }, this.buttons);
    if (caption) this.element.prepend(make("span", { className: "name" }, caption));
    this.element.addEventListener("change", ({ target }) => onChoose(target.value));
    this.element.addEventListener("submit", (event) => event.preventDefault());
  }

  offer(values, current, textOf = String) { // rebuilt only when they differ, so that the focus stays
    const texts = JSON.stringify(values.map((value) => [value, textOf(value)]));
    this.element.hidden = values.length < 2;
    if (texts !== this.texts) this.buttons.replaceChildren(...values.map((value) => make("label", {},
      make("input", { type: "radio", name: this.name, value }), make("span", { dir: "auto" }, textOf(value)))));
    this.texts = texts;
    for (const input of this.buttons.querySelectorAll("input")) input.checked = input.value === current;
  }
}
