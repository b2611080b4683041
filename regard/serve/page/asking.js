// What is asked of which run: the choice of the run, the box for its input, and the settings. All views share one.

import { make } from "/show/drawing.js";
import { address } from "./address.js";
import { Latest, Pause } from "./latest.js";
import { EXAMPLE, PictureBox } from "./file_box.js";
import { RecordingBox } from "./recording_box.js";
import { brief, factsOf, listRuns } from "./runs.js";
import { Settings } from "./settings.js";
import { Tries, examplesOf } from "./tries.js";

const PAUSE = 250; // ms without a key before the server is asked
const PAIRS = { "question-answering": ["Question", "Text"], "multiple-choice": ["Question", "Answers, one per line"] };
const PAIR = ["First text", "Second text"];
const NOTHING = Object.fromEntries(
  ["forced", "step", "alternative", "target", "row", "column", "word", "go"].map((name) => [name, ""]),
);

class Asking {
  constructor() {
    this.listing = new Latest();
    this.pause = new Pause(PAUSE);
    this.run = make("select", { id: "run" });
    this.facts = make("p", { className: "quiet facts" });
    this.bar = make("div", { className: "bar" }, make("label", { htmlFor: "run" }, "Run"), this.run, this.facts);
    this.texts = ["text", "second"].map((name) => {
      const box = make("textarea", { id: `input-${name}`, name, rows: 2, dir: "auto", spellcheck: false });
      box.setAttribute("autocapitalize", "off");
      return { name, box, label: make("label", { htmlFor: box.id }) };
    });
    const onFile = ({ kind, name }) => (address.set({ [kind]: name }), this.ask());
    this.files = { picture: new PictureBox(onFile), recording: new RecordingBox(onFile) }; // by what a run reads
    this.settings = new Settings(() => this.later());
    this.inputs = make("div", { className: "inputs" });
    this.tries = new Tries((example, at) => this.take(example, at));
    this.box = make("div", { className: "asking", hidden: true }, this.inputs, this.tries.element, this.settings.element);
    this.run.addEventListener("change", () => this.choose(this.run.value));
    this.inputs.addEventListener("input", ({ target }) => {
      if (target.matches("textarea"))
        (address.set({ [target.name]: target.value, ...NOTHING }), this.tries.update(), this.later());
    });
  }

  // `onAsk({run, input, settings})` is called when what is asked has changed; run is undefined if there is none
  attach({ onAsk, onWait, onProblem, hidden = [], label = "" }) {
    Object.assign(this, { onAsk, onWait, onProblem, hidden, label });
  }

  choose(name) {
    // another run: what was chosen of the one before does not fit it
    address.set({ run: name, ...NOTHING });
    this.open();
  }

  async open() {
    // what the address says
    this.pause.stop();
    try {
      this.onWait("Asking for the runs …");
      const runs = await this.listing.run((signal) => listRuns(signal));
      if (!runs) return;
      const names = runs.map((run) => run.name),
        wanted = address.get("run") || names[0];
      if (!names.length) return this.onAsk({});
      this.offer(names.includes(wanted) ? names : [wanted, ...names], wanted);
      this.onWait(`Loading ${wanted} …`);
      const facts = await this.listing.run(() => factsOf(wanted));
      if (!facts) return;
      if (!address.get("run")) address.set({ run: wanted });
      this.show(facts);
      this.ask();
    } catch (problem) {
      this.facts.textContent = "";
      this.current = undefined;
      this.box.hidden = true;
      this.onProblem(problem, () => this.open());
    }
  }

  offer(names, wanted) {
    if (this.run.textContent !== names.join(""))
      this.run.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    this.run.value = wanted;
  }

  show(facts) {
    this.current = facts;
    this.box.hidden = false;
    this.facts.textContent = brief(facts);
    this.settings.show(facts, this.hidden);
    const labels = facts.reads === "pair" ? (PAIRS[facts.task] ?? PAIR) : [this.label || capital(facts.sides[0])];
    const shown =
      facts.reads in this.files
        ? [this.files[facts.reads].element]
        : this.texts.slice(0, labels.length).map(({ box, label }, at) => {
            label.textContent = labels[at];
            if (box.value !== address.get(box.name)) box.value = address.get(box.name);
            return label.parentElement ?? make("div", { className: "input" }, label, box);
          });
    if (shown.some((each, at) => each !== this.inputs.children[at]) || shown.length !== this.inputs.children.length)
      this.inputs.replaceChildren(...shown);
    this.missing();
    this.tries.show(facts.name, () => facts.reads in this.files || !this.texts.some(({ box }) => box.value.trim()));
  }

  take(example, at) {
    // an example
    const [kind] = Object.keys(this.files).filter((name) => example[name]);
    if (kind) return this.files[kind].show(example[kind], `Example ${at + 1}`, true);
    const [text, ...others] = example.split(/\s*\t\s*/);
    address.set({ text, second: others.join("\n"), ...NOTHING });
    this.show(this.current);
    this.texts[0].box.focus();
    this.ask();
  }

  missing() {
    // what a link could not hold
    const { reads } = this.current;
    if (reads in this.files) this.restore(this.files[reads], address.get(reads));
    for (const { name, box } of this.texts)
      box.placeholder = address.all("missing").includes(name)
        ? "The text was too long for the link: paste it again."
        : "";
  }

  async restore(file, name) {
    const [, number] = EXAMPLE.exec(name) ?? [];
    if (!number || file.value) return file.missing(name);
    const example = (await examplesOf(this.current.name))[number - 1];
    if (example?.[file.kind] && !file.value) this.take(example, number - 1);
  }

  get input() {
    // as the API takes it; "" if there is none
    const { reads, task } = this.current,
      [text, second] = this.texts.map(({ name }) => address.get(name));
    if (reads in this.files) return this.files[reads].value ? { [reads]: this.files[reads].value } : "";
    if (reads === "text") return text.trim() && text;
    const parts =
      task === "multiple-choice"
        ? second.split("\n").filter((line) => line.trim())
        : [second.replace(/\s+/g, " ").trim()];
    return text.trim() && parts.join("") && [text, ...parts].map((part) => part.replace(/\t/g, " ")).join("\t");
  }

  later() {
    this.pause.then(() => this.ask());
  }

  ask() {
    this.pause.stop();
    if (this.current) this.onAsk({ run: this.current, input: this.input, settings: this.settings.values });
  }
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

export const asking = new Asking();
