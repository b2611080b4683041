// Step by step: a decode that can be replayed, and continued from another choice.

import { make } from "/show/drawing.js";
import { post } from "./api.js";
import { address } from "./address.js";
import { asking } from "./asking.js";
import { barRow, logProb } from "./bars.js";
import { fileButtons } from "./charts.js";
import { Forced, forcedIds } from "./forced.js";
import { tinted } from "./importance.js";
import { Latest } from "./latest.js";
import { Places } from "./places.js";
import { Player } from "./player.js";
import { can } from "./runs.js";
import { Status } from "./status.js";
import { Tree } from "./tree.js";

export class StepsView {
  constructor(panel) {
    this.panel = panel;
    this.stepping = new Latest();
    this.status = new Status();
    this.player = new Player((at) => this.at(at));
    this.forced = new Forced(() => asking.ask());
    this.tree = new Tree((at) => this.player.by(at - this.player.at));
    this.places = new Places((at) => this.player.by(at - this.player.at));
    this.output = make("ol", { className: "tokens", ariaLabel: "Output", translate: false });
    this.output.addEventListener("click", ({ target }) => {
      const at = [...this.output.children].findIndex((item) => item.contains(target));
      if (at >= 0) this.player.by(at - this.player.at);
    });
    this.facts = make("p", { className: "quiet" });
    this.source = make("p", { className: "tinted", dir: "auto", translate: false });
    this.seen = make(
      "section",
      { className: "card", ariaLabel: "Attention" },
      (this.seenTitle = make("h2")),
      this.source,
      this.places.element,
    );
    this.choice = make("p", { className: "choice", role: "status", translate: false });
    this.likely = make("ul", { className: "bars" });
    this.likely.addEventListener("click", ({ target }) => this.force(target.closest("button")));
    this.chosen = make(
      "section",
      { className: "card", ariaLabel: "Next token" },
      make("h2", {}, "The likeliest next tokens"),
      this.choice,
      this.likely,
      make("p", { className: "quiet" }, "Choose another one, and the output continues from there."),
    );
    this.files = make("div", { className: "files" });
    this.body = make(
      "div",
      { className: "replay", hidden: true },
      this.forced.element,
      make(
        "section",
        { className: "card", ariaLabel: "Output" },
        make("h2", {}, "Output"),
        this.output,
        this.facts,
        this.player.element,
      ),
      make("div", { className: "two" }, this.seen, this.chosen),
      this.tree.element,
      this.files,
    );
    document.addEventListener("keydown", (event) => this.body.checkVisibility() && this.player.press(event));
  }

  open() {
    this.panel.replaceChildren(asking.bar, asking.box, this.status.element, this.body);
    asking.attach({
      onAsk: (asked) => this.ask(asked),
      onWait: (text) => this.say(() => this.status.busy(text)),
      onProblem: (problem, again) => this.say(() => this.status.problem(problem, again)),
      hidden: ["n_best"],
    });
    asking.open();
  }

  close() {
    this.stepping.stop();
    this.player.pause();
  }

  say(words) {
    // instead of steps
    this.close();
    this.body.hidden = true;
    words();
  }

  async ask({ run, input, settings }) {
    if (!run) return this.say(() => this.status.noRun());
    if (!can(run, "write"))
      return this.say(() =>
        this.status.empty(
          `${run.name} does not write text`,
          "So there are no steps to show. Choose a run that translates, continues or captions.",
        ),
      );
    if (!input) return this.say(() => this.status.noInput(run, "Type a text to watch how the output is written."));
    const { n_best, ...how } = settings;
    try {
      const found = await this.stepping.run((signal) =>
        post("/v1/steps", { run: run.name, input, forced: forcedIds(), settings: { ...how, n_best: 1 } }, { signal }),
      );
      if (!found) return;
      this.status.clear();
      await this.places.ready(found, run, input);
      this.grows = can(run, "stream"); // a language model reads what it has written
      this.show(found);
    } catch (problem) {
      this.say(() => this.status.problem(problem, () => this.ask({ run, input, settings })));
      if (forcedIds().length && problem.status === 400) this.status.element.append(this.unforce());
    }
  }

  unforce() {
    const button = make("button", { type: "button" }, "Undo what was forced");
    button.addEventListener("click", () => this.forced.keep([]));
    return button;
  }

  show(found) {
    this.found = found;
    this.body.hidden = false;
    this.most = Math.max(1e-9, ...found.steps.flatMap((step) => step.attention ?? []));
    this.output.replaceChildren(
      ...found.steps.map((step) =>
        make(
          "li",
          { className: step.forced ? "is-forced" : "" },
          make(
            "button",
            { type: "button", tabIndex: -1, title: step.forced ? "forced" : "" },
            make("bdi", {}, step.chosen.token),
          ),
        ),
      ),
    );
    this.facts.textContent = `log-probability ${logProb(found.score)} · ${found.finished ? "ended by itself" : "ended at the limit of its length"}`;
    const undone = this.forced.element.contains(document.activeElement);
    this.forced.show(found.steps);
    this.files.replaceChildren(this.saveJson());
    this.player.show(address.number("step", 1) - 1, found.steps.length);
    this.at(this.player.at);
    if (undone && this.forced.element.hidden) this.output.querySelector("[tabindex='0']").focus();
  }

  saveJson() {
    const all = fileButtons("steps", { svg: () => "", data: () => this.found });
    return Object.assign(all.lastElementChild, { textContent: "Save the steps as JSON" });
  }

  at(at) {
    // show one step
    const { steps, source, kind } = this.found,
      step = steps[at];
    address.set({ step: at ? at + 1 : "" });
    for (const [place, item] of [...this.output.children].entries()) {
      item.classList.toggle("now", place === at);
      item.classList.toggle("later", place > at);
      item.firstChild.tabIndex = place === at ? 0 : -1;
      item.firstChild.ariaCurrent = place === at ? "step" : null;
    }
    this.seen.hidden = !step.attention;
    this.seenTitle.textContent = kind === "attention" ? "Attention at this step" : `At this step: ${kind}`;
    this.source.hidden = !source;
    const read = this.grows ? source?.slice(0, source.length - steps.length + 1 + at) : source;
    if (source && step.attention)
      this.source.replaceChildren(
        ...read.map((token, place) => tinted(token, step.attention[place], step.attention[place] / this.most)),
      );
    this.places.at(at);
    this.choice.replaceChildren(
      "after ",
      make("bdi", {}, step.previous),
      " → ",
      make("b", {}, make("bdi", {}, step.chosen.token)),
    );
    const focused = this.likely.contains(document.activeElement);
    this.likely.replaceChildren(
      ...this.candidates(step).map((each) => this.candidate(each, step.chosen.id === each.id)),
    );
    if (focused) this.likely.querySelector(".chosen")?.focus();
    this.tree.show(this.found.tree, at);
  }

  candidates({ likely, chosen }) {
    // and the choice, where it is not among them
    return likely.some((each) => each.id === chosen.id) ? likely : [...likely, chosen];
  }

  candidate({ id, token, probability }, isChosen) {
    const row = barRow(token, probability, {
      tag: "button",
      type: "button",
      className: isChosen ? "chosen" : "",
      ariaPressed: String(isChosen),
    });
    row.dataset.id = id;
    return make("li", {}, row);
  }

  force(button) {
    if (!button) return;
    const before = this.found.steps.slice(0, this.player.at).map((step) => step.chosen.id);
    this.player.pause();
    this.forced.keep([...before, Number(button.dataset.id)]);
  }
}
