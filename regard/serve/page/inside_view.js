// Inside a recurrent model: gates and states, token by token, and how far back gradients reach.

import { make } from "/show/drawing.js";
import { post } from "./api.js";
import { Charts } from "./charts.js";
import { Latest } from "./latest.js";
import { Look } from "./look.js";
import { LookView } from "./look_view.js";
import { GATE_WORDS } from "./palette.js";
import { can } from "./runs.js";
import { Status } from "./status.js";

export class InsideView extends LookView {
  constructor(panel) {
    super(panel, { kind: "gates", name: "Gates and states" });
    this.look = new Look(this.looked, { words: GATE_WORDS });
    this.measuring = new Latest();
    this.gradientStatus = new Status();
    this.summary = make("p", { className: "wide" });
    this.charts = new Charts();
    this.measure = make("button", { type: "button" }, "Measure gradient flow");
    this.flow = make(
      "section",
      { className: "card flow", ariaLabel: "Gradient flow" },
      make("h2", {}, "Gradient flow"),
      make(
        "p",
        { className: "quiet" },
        "How far back the loss of the last token reaches, before and after training, on the run’s own validation text.",
      ),
      this.measure,
      this.gradientStatus.element,
      this.summary,
      this.charts.element,
    );
    this.flow.hidden = true; // until it is known whether the run is recurrent
    this.measure.addEventListener("click", () => this.gradients());
  }

  more() {
    return [this.flow];
  }

  close() {
    super.close();
    this.measuring.stop();
  }

  refusal(run) {
    if (run.reads === "picture" || run.reads === "recording")
      return [
        `${run.name} reads ${run.reads}s`,
        "Gates, states and gradients are shown along a text: choose a recurrent run that reads text.",
      ];
    if (!can(run, "gates"))
      return [
        `${run.name} is not recurrent`,
        "It has no gates and no hidden state to look into. Its attention, if it has any, is under Attention.",
      ];
  }

  about(run) {
    this.flow.hidden = !can(run, "gates");
    if (this.run === run.name) return;
    this.run = run.name;
    this.measuring.stop();
    this.drawFlow({ summary: "", charts: [] });
    this.gradientStatus.clear();
    this.measure.hidden = false;
  }

  async gradients() {
    this.gradientStatus.busy("Measuring …");
    this.measure.disabled = true;
    try {
      const found = await this.measuring.run((signal) => post("/v1/gradients", { run: this.run }, { signal }));
      if (!found) return;
      this.gradientStatus.clear();
      this.measure.hidden = true;
      this.drawFlow(found);
    } catch (problem) {
      this.gradientStatus.problem(problem, problem.status === 400 ? undefined : () => this.gradients());
    } finally {
      this.measure.disabled = false;
    }
  }

  drawFlow({ summary, charts }) {
    this.summary.textContent = summary;
    this.charts.show(charts);
  }
}
