// Compare: the same input through several runs, side by side: their outputs, and what they attended to.

import { make } from "/show/drawing.js";
import { answered } from "./answers.js";
import { post } from "./api.js";
import { address } from "./address.js";
import { asking } from "./asking.js";
import { importance } from "./importance.js";
import { Latest } from "./latest.js";
import { Look } from "./look.js";
import { brief, can, factsOf, isSilent, listRuns } from "./runs.js";
import { SETTINGS } from "./settings.js";
import { Status } from "./status.js";

const MOST = 6; // runs side by side

class Side {
  // one run
  constructor(name) {
    this.name = name;
    this.asking = new Latest();
    this.status = new Status();
    this.about = make("p", { className: "quiet" });
    this.answer = make("div");
    this.looked = make("div", { className: "looked" });
    this.look = new Look(this.looked, { remember: false });
    this.element = make(
      "section",
      { className: "card side", ariaLabel: name },
      make("h2", {}, name),
      this.about,
      this.status.element,
      this.answer,
      this.looked,
    );
  }

  clear() {
    this.asking.stop();
    this.look.clear();
    this.answer.replaceChildren();
  }

  async ask(reads, input) {
    try {
      this.status.busy("Loading …");
      const run = await factsOf(this.name);
      this.about.textContent = brief(run);
      if (run.reads !== reads)
        return this.refuse(
          `It reads ${run.reads === "pair" ? "pairs of texts" : `a ${run.reads}`}, and the first run does not.`,
        );
      if (!input) return this.refuse("");
      const found = await this.asking.run(async (signal) => {
        const {
          predictions: [entry],
        } = await post("/v1/predict", { run: run.name, input }, { signal });
        this.status.clear();
        this.answer.replaceChildren(answered(entry, { question: typeof input === "string" ? input : "" }));
        const seen = can(run, "look") && !isSilent(run, entry) ? await post("/v1/look", { run: run.name, input }, { signal }) : undefined;
        return { entry, seen };
      });
      if (found) await this.show(found);
    } catch (problem) {
      this.clear();
      this.status.problem(problem, () => this.ask(reads, input));
    }
  }

  async show({ entry, seen }) {
    if (!seen) return this.look.clear();
    if (("label" in entry || "number" in entry) && "output" in seen) {
      this.look.clear();
      this.looked.replaceChildren(await importance(seen));
    } else await this.look.show("output" in seen ? { ...seen, output: "" } : seen);
  }

  refuse(sentence) {
    this.clear();
    this.status.clear();
    if (sentence) this.status.problem({ message: sentence });
  }
}

export class CompareView {
  constructor(panel) {
    this.panel = panel;
    this.sides = new Map(); // name -> Side
    this.status = new Status();
    this.listing = new Latest();
    this.chips = make("div", { className: "chips" });
    this.group = make("fieldset", { className: "bar" }, make("legend", {}, "Runs, side by side"), this.chips);
    this.beside = make("div", { className: "beside" });
    this.chips.addEventListener("change", () => this.choose());
  }

  get names() {
    return [...new Set([address.get("run"), ...address.all("with")].filter(Boolean))].slice(0, MOST);
  }

  async open() {
    this.panel.replaceChildren(this.group, asking.box, this.status.element, this.beside);
    asking.attach({
      onAsk: (asked) => this.ask(asked),
      onWait: (text) => this.status.busy(text),
      onProblem: (problem, again) => this.status.problem(problem, again),
      hidden: SETTINGS, // each run decodes with its own
    });
    try {
      const runs = await this.listing.run((signal) => listRuns(signal));
      if (!runs) return;
      if (!address.get("run") && runs.length) address.set({ run: runs[0].name });
      this.offer(runs);
      asking.open();
    } catch (problem) {
      this.status.problem(problem, () => this.open());
    }
  }

  close() {
    this.listing.stop();
    for (const side of this.sides.values()) side.asking.stop();
  }

  offer(runs) {
    const same =
      runs.map((run) => run.name).join() === [...this.chips.querySelectorAll("input")].map((box) => box.value).join();
    if (!same)
      this.chips.replaceChildren(
        ...runs.map(({ name, task }) =>
          make(
            "label",
            { className: "chip" },
            make("input", { type: "checkbox", value: name }),
            make("span", {}, name, " ", make("small", { className: "quiet" }, task)),
          ),
        ),
      );
    for (const box of this.chips.querySelectorAll("input")) box.checked = this.names.includes(box.value);
  }

  choose() {
    const chosen = [...this.chips.querySelectorAll("input:checked")].map((box) => box.value);
    const kept = this.names.filter((name) => chosen.includes(name)),
      [first, ...others] = [...new Set([...kept, ...chosen])];
    address.set({ run: first ?? "", with: others });
    if (!first) return this.say(() => this.status.empty("No run is chosen", "Choose two runs or more above."));
    asking.open();
  }

  say(words) {
    this.beside.replaceChildren();
    words();
  }

  ask({ run, input }) {
    if (!run) return this.say(() => this.status.noRun());
    const { names } = this;
    this.status.clear();
    if (names.length < 2)
      this.status.empty("Choose another run", "The same input then goes through all of them, side by side.");
    else if (!input) this.status.noInput(run, "Type a text: every run answers as you type.");
    for (const name of this.sides.keys())
      if (!names.includes(name)) (this.sides.get(name).clear(), this.sides.delete(name));
    for (const name of names) if (!this.sides.has(name)) this.sides.set(name, new Side(name));
    const shown = names.map((name) => this.sides.get(name).element);
    if (shown.some((each, at) => each !== this.beside.children[at]) || shown.length !== this.beside.children.length)
      this.beside.replaceChildren(...shown);
    for (const name of names) this.sides.get(name).ask(run.reads, input);
  }
}
