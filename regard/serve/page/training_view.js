// Training: curves, samples and speed of a run, pushed by the server as its log grows.

import { make } from "/show/drawing.js";
import { events } from "./api.js";
import { address } from "./address.js";
import { Charts } from "./charts.js";
import { Latest } from "./latest.js";
import { listRuns } from "./runs.js";
import { Status } from "./status.js";

const AGAIN = 2; // seconds until a stream that has ended is asked for again

export class TrainingView {
  constructor(panel) {
    this.panel = panel;
    this.listing = new Latest();
    this.watching = new Latest();
    this.status = new Status();
    this.run = make("select", { id: "training-run" });
    this.bar = make("div", { className: "bar" }, make("label", { htmlFor: "training-run" }, "Run"), this.run);
    this.facts = make("dl", { className: "key-numbers" });
    this.charts = new Charts();
    this.samples = make("pre", { dir: "auto", translate: false, tabIndex: 0 });
    this.sampled = make(
      "section",
      { className: "card", ariaLabel: "Samples" },
      make("h2", {}, "Samples"),
      this.samples,
    );
    this.body = make(
      "div",
      { className: "training-body", hidden: true },
      this.facts,
      this.charts.element,
      this.sampled,
    );
    this.run.addEventListener("change", () => (address.set({ run: this.run.value }), this.open()));
  }

  async open() {
    this.panel.replaceChildren(this.bar, this.status.element, this.body);
    this.body.hidden = true;
    this.watching.stop();
    try {
      this.status.busy("Asking for the runs …");
      const runs = await this.listing.run((signal) => listRuns(signal));
      if (!runs) return;
      if (!runs.length) return this.status.noRun();
      const names = runs.map((run) => run.name),
        training = runs.find((run) => run.state === "training");
      const wanted = address.get("run") || (training ?? runs[0]).name;
      this.run.replaceChildren(
        ...(names.includes(wanted) ? names : [wanted, ...names]).map((name) => make("option", { value: name }, name)),
      );
      this.run.value = wanted;
      if (!address.get("run")) address.set({ run: wanted });
      this.watch(wanted);
    } catch (problem) {
      this.status.problem(problem, () => this.open());
    }
  }

  close() {
    this.listing.stop();
    this.watching.stop();
    this.status.clear();
  }

  async watch(name) {
    this.status.busy("Waiting for the log …");
    try {
      const ended = await this.watching.run(async (signal) => {
        for await (const data of events(`/v1/runs/${encodeURIComponent(name)}/training/events`, { signal }))
          this.show(JSON.parse(data));
        return true;
      });
      if (ended)
        this.status.problem({ message: "The server has ended the stream.", retryAfter: AGAIN }, () => this.watch(name));
    } catch (problem) {
      this.status.problem(problem, () => this.watch(name));
    }
  }

  show(found) {
    const { name, state, step, score, charts, last, samples } = found;
    this.body.hidden = false;
    if (charts.length) this.status.clear();
    else
      this.status.empty(
        "No curves yet",
        state === "training"
          ? "They appear with the first line of the log."
          : `${name} has no log. Train it with “regard train” to see its curves here as they grow.`,
      );
    const speed = last?.tokens_per_second,
      number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
    const facts = {
      State: state,
      Step: step || last?.step ? number(Math.max(step, last?.step ?? 0)) : "",
      "Best validation": score,
      Loss: typeof last?.loss === "number" ? number(last.loss) : "",
      Speed: typeof speed === "number" ? `${Math.round(speed).toLocaleString("en")} per second` : "",
    };
    this.facts.replaceChildren(
      ...Object.entries(facts)
        .filter(([, value]) => value)
        .map(([term, value]) =>
          make(
            "div",
            {},
            make("dt", {}, term),
            make("dd", { className: term === "State" ? `state ${value.split(" ")[0]}` : "" }, value),
          ),
        ),
    );
    this.charts.show(charts);
    this.sampled.hidden = !samples;
    if (this.samples.textContent !== samples) this.samples.textContent = samples;
  }
}
