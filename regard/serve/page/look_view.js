// What Attention and Inside share: a run, its input, the output that it reads, and the map of /v1/look.

import { make } from "/show/drawing.js";
import { post } from "./api.js";
import { address } from "./address.js";
import { asking } from "./asking.js";
import { Latest, Pause } from "./latest.js";
import { Look } from "./look.js";
import { can } from "./runs.js";
import { SETTINGS } from "./settings.js";
import { Status } from "./status.js";

export class LookView {
  constructor(panel, { kind, name }) {
    Object.assign(this, { panel, kind });
    this.looking = new Latest();
    this.pause = new Pause(250);
    this.status = new Status();
    this.looked = make("section", { className: "looked", ariaLabel: name });
    this.look = new Look(this.looked);
    this.target = make("textarea", { id: `target-${kind}`, rows: 1, dir: "auto", spellcheck: false });
    this.targetBox = make(
      "div",
      { className: "input target", hidden: true },
      make(
        "label",
        { htmlFor: this.target.id },
        "Output to read ",
        make("span", { className: "quiet" }, "(empty: the model’s own)"),
      ),
      this.target,
    );
    this.target.addEventListener("input", () => {
      address.set({ target: this.target.value, row: "", column: "" });
      this.pause.then(() => asking.ask());
    });
  }

  open() {
    this.panel.replaceChildren(
      asking.bar,
      make("div", { className: "two" }, asking.box, this.targetBox),
      this.status.element,
      this.looked,
      ...this.more(),
    );
    asking.attach({
      onAsk: (asked) => this.ask(asked),
      onWait: (text) => this.say(() => this.status.busy(text)),
      onProblem: (problem, again) => this.say(() => this.status.problem(problem, again)),
      hidden: SETTINGS,
    });
    asking.open();
  }

  close() {
    this.looking.stop();
    this.pause.stop();
  }

  more() {
    // elements below the map
    return [];
  }

  refusal() {} // why a run cannot be shown: a title and a sentence

  say(words) {
    this.looking.stop();
    this.look.clear();
    words();
  }

  async ask({ run, input }) {
    if (!run) return this.say(() => this.status.noRun());
    const refused = this.refusal(run);
    this.targetBox.hidden = Boolean(refused) || !can(run, "write") || run.sides[0] === run.sides[1];
    if (this.target.value !== address.get("target")) this.target.value = address.get("target");
    this.about?.(run);
    if (refused) return this.say(() => this.status.empty(...refused));
    if (!input) return this.say(() => this.status.noInput(run, "Type a text to see what the model attends to."));
    const target = this.targetBox.hidden ? "" : address.get("target");
    try {
      const found = await this.looking.run((signal) =>
        post("/v1/look", { run: run.name, input, kind: this.kind, ...(target.trim() ? { target } : {}) }, { signal }),
      );
      if (!found) return;
      this.status.clear();
      await this.look.show(found);
    } catch (problem) {
      this.say(() => this.status.problem(problem, () => this.ask({ run, input })));
    }
  }
}
