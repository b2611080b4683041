// Use: what is typed is answered at once; below it, what the model attended to.

import { make } from "/show/drawing.js";
import { answered, inWords } from "./answers.js";
import { post } from "./api.js";
import { address } from "./address.js";
import { asking } from "./asking.js";
import { importance } from "./importance.js";
import { Latest } from "./latest.js";
import { Look } from "./look.js";
import { can, isSilent } from "./runs.js";
import { Status } from "./status.js";
import { Writer } from "./writer.js";

const INVITES = [
  "Type or paste a text: the answer appears as you type.",
  "Fill both boxes: the answer appears as you type.",
];

export class UseView {
  constructor(panel) {
    this.panel = panel;
    this.answering = new Latest();
    this.looking = new Latest();
    this.status = new Status();
    this.answer = make("div", { className: "result" });
    this.live = make("p", { className: "unseen", role: "status" });
    this.looked = make("div", { className: "looked" });
    this.lookStatus = new Status();
    this.look = new Look(this.looked);
    this.words = make("div", { className: "words-card" });
    this.writer = new Writer();
    this.two = make("div", { className: "two" });
    this.below = make(
      "section",
      { className: "below", ariaLabel: "What it attends to" },
      this.lookStatus.element,
      this.words,
      this.looked,
    );
  }

  open() {
    this.two.replaceChildren(
      asking.box,
      make(
        "section",
        { className: "card answer-card", ariaLabel: "Answer" },
        this.status.element,
        this.answer,
        this.writer.element,
        this.live,
      ),
    );
    this.panel.replaceChildren(asking.bar, this.two, this.below);
    asking.attach({
      onAsk: (asked) => this.ask(asked),
      onWait: (text) => this.reset(() => this.status.busy(text)),
      onProblem: (problem, again) => this.reset(() => this.status.problem(problem, again)),
    });
    asking.open();
  }

  close() {
    this.answering.stop();
    this.looking.stop();
    this.writer.stop();
  }

  reset(say) {
    // nothing but one sentence
    this.close();
    this.forget();
    this.writer.hide();
    this.answer.replaceChildren();
    say();
  }

  forget() {
    // what was looked at
    this.looking.stop();
    this.lookStatus.clear();
    this.words.replaceChildren();
    this.look.clear();
  }

  async ask({ run, input, settings }) {
    if (!run) return this.reset(() => this.status.noRun());
    if (can(run, "stream")) return this.write(run, input, settings);
    if (!input) return this.reset(() => this.status.noInput(run, ...INVITES));
    this.writer.hide();
    this.panel.ariaBusy = "true";
    try {
      const found = await this.answering.run((signal) =>
        post("/v1/predict", { run: run.name, input, settings: run.decoding ? settings : {} }, { signal }),
      );
      if (!found) return;
      this.status.clear();
      this.show(run, input, found.predictions[0]);
    } catch (problem) {
      this.reset(() => this.status.problem(problem, () => this.ask({ run, input, settings })));
    }
    this.panel.ariaBusy = "false";
  }

  write(run, prompt, settings) {
    // a language model continues the text when it is asked to
    this.answering.stop();
    this.forget();
    this.answer.replaceChildren();
    this.status.clear();
    this.writer.show(run, prompt, settings);
  }

  show(run, input, found) {
    const all = [found, ...(found.alternatives ?? [])],
      asked = address.number("alternative", 0);
    const chosen = asked < all.length ? asked : 0;
    const onChoose = (at) => {
      address.set({ alternative: at || "" });
      this.show(run, input, found);
      this.answer.querySelectorAll(".alternatives button")[at]?.focus();
    };
    this.answer.replaceChildren(
      answered(found, { question: typeof input === "string" ? input : "", chosen, onChoose }),
    );
    this.live.textContent = inWords(all[chosen]);
    if (can(run, "look") && !isSilent(run, all[chosen])) this.lookAt(run, input, chosen ? all[chosen].text : undefined, found);
    else this.forget();
  }

  async lookAt(run, input, target, found) {
    try {
      const seen = await this.looking.run((signal) => post("/v1/look", { run: run.name, input, target }, { signal }));
      if (!seen) return;
      this.lookStatus.clear();
      const isLabel = ("label" in found || "number" in found) && "output" in seen;
      this.words.replaceChildren(...(isLabel ? [await importance(seen)] : []));
      if (isLabel) this.look.clear();
      else await this.look.show("output" in seen ? { ...seen, output: "" } : seen);
    } catch (problem) {
      this.forget();
      this.lookStatus.problem(
        problem,
        problem.status === 400 ? undefined : () => this.lookAt(run, input, target, found),
      );
    }
  }
}
