// The tokens with which an output is forced to begin: ids, kept in the address.

import { make } from "/show/drawing.js";
import { address } from "./address.js";

export const forcedIds = () => address.get("forced").split(",").filter(Boolean).map(Number);

export class Forced {
  constructor(onChange) {
    this.onChange = onChange;
    this.words = make("bdi", { className: "forced-words", translate: false });
    const button = (text, keep) => {
      const made = make("button", { type: "button" }, text);
      made.addEventListener("click", () => this.keep(keep(forcedIds())));
      return made;
    };
    this.element = make(
      "div",
      { className: "note forced", hidden: true },
      make("p", { role: "status" }, "Forced to begin with ", this.words),
      make(
        "div",
        { className: "row" },
        button("Undo the last", (ids) => ids.slice(0, -1)),
        button("Undo all", () => []),
      ),
    );
  }

  keep(ids) {
    address.set({ forced: ids.join(",") });
    this.onChange();
  }

  show(steps) {
    const tokens = steps.filter((step) => step.forced).map((step) => step.chosen.token);
    this.words.textContent = tokens.join(" ");
    this.element.hidden = !tokens.length;
  }
}
