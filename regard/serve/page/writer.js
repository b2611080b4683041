// A language model that continues a text: streamed as it is written, until it ends or Stop is pressed.

import { make } from "/show/drawing.js";
import { Problem, events, post } from "./api.js";
import { address } from "./address.js";
import { Latest } from "./latest.js";
import { Status } from "./status.js";

const USUAL = 256; // tokens, where the settings leave the number open
const STREAMED = { temperature: 2, top_k: Infinity, top_p: 1, seed: Infinity }; // settings of /v1/completions, and their largest values
const PLAIN = { n_best: 1, beam: 1, min_length: 0, no_repeat: 0 }; // what it does besides: nothing

export const isStreamed = (settings) =>
  Object.entries(PLAIN).every(([name, value]) => (settings[name] ?? value) === value) &&
  Object.entries(STREAMED).every(([name, most]) => (settings[name] ?? 0) <= most);

export class Writer {
  constructor() {
    this.streaming = new Latest();
    this.status = new Status();
    this.start = make("button", { type: "button", className: "primary" }, "Write");
    this.halt = make("button", { type: "button", disabled: true }, "Stop");
    this.state = make("span", { className: "quiet", role: "status" });
    this.prompt = make("span", { className: "prompt" });
    this.written = make("span", { className: "written" });
    this.text = make("p", { className: "answer-text page", dir: "auto", translate: false }, this.prompt, this.written);
    this.element = make(
      "div",
      { className: "writer", hidden: true },
      make("div", { className: "row" }, this.start, this.halt, this.state),
      this.status.element,
      this.text,
    );
    this.start.addEventListener("click", () => this.write());
    this.halt.addEventListener("click", () => this.stop());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && this.element.checkVisibility()) this.write();
    });
  }

  show(run, prompt, settings) {
    const same = this.asked && JSON.stringify(this.asked) === JSON.stringify({ run: run.name, prompt, settings });
    if (!same) {
      this.stop();
      this.status.clear();
      this.written.textContent = "";
      this.state.textContent = "Ctrl+Enter writes, too.";
    }
    this.asked = { run: run.name, prompt, settings };
    this.prompt.textContent = prompt;
    this.element.hidden = false;
    if (address.get("go") && !same) this.write();
  }

  hide() {
    this.stop();
    this.asked = undefined;
    this.element.hidden = true;
  }

  async write() {
    const { run, prompt, settings } = this.asked;
    address.set({ go: 1 });
    this.status.clear();
    this.written.textContent = "";
    this.running(true, "Writing …");
    const began = performance.now();
    try {
      const ended = await this.streaming.run((signal) =>
        isStreamed(settings) ? this.stream(run, prompt, settings, signal) : this.whole(run, prompt, settings, signal),
      );
      const took = ((performance.now() - began) / 1000).toFixed(1);
      if (ended) this.running(false, `Done: ${this.written.textContent.length} characters in ${took} s.`);
    } catch (problem) {
      this.running(false, "");
      this.status.problem(problem, () => this.write());
    }
  }

  async stream(run, prompt, settings, signal) {
    const given = Object.fromEntries(
      Object.keys(STREAMED)
        .filter((name) => name in settings)
        .map((name) => [name, settings[name]]),
    );
    const body = { model: run, prompt, stream: true, max_tokens: settings.max_length || USUAL, ...given };
    if (!settings.sample) body.temperature = 0;
    for await (const data of events("/v1/completions", { body, signal })) {
      if (data === "[DONE]") continue;
      const found = JSON.parse(data);
      if (found.error) throw new Problem(found.error.message);
      this.written.append(found.choices?.[0]?.text ?? "");
    }
    return true;
  }

  async whole(run, prompt, settings, signal) {
    // with settings that are not streamed
    const body = { run, input: prompt, settings: { ...settings, max_length: settings.max_length || USUAL } };
    const {
      predictions: [{ text, alternatives }],
    } = await post("/v1/predict", body, { signal });
    const several = [text, ...alternatives.map((each) => each.text)].map((each) =>
      each.startsWith(prompt) ? each.slice(prompt.length) : each,
    );
    this.written.textContent = several.join(`\n\n${prompt}`);
    return true;
  }

  stop() {
    this.streaming.stop();
    if (!this.halt.disabled) this.running(false, "Stopped.");
  }

  running(is, state) {
    const focused = document.activeElement === this.start || document.activeElement === this.halt;
    this.start.disabled = is;
    this.halt.disabled = !is;
    if (focused) (is ? this.halt : this.start).focus();
    this.state.textContent = state;
  }
}
