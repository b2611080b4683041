// What the views of a picture and of a recording share: words, and the choice of a view, of a head and of a word.

import { Choices } from "./choices.js";
import { make, unpack } from "./drawing.js";
import { sharesOf } from "./shares.js";

export class WordsView {
  constructor(root, className, { onChange = () => {} }) {
    Object.assign(this, { root, className, onChange, turn: 0, word: 0, parts: {}, groups: {} });
    this.wanted = { view: "0", head: "mean" };
    this.bytes = new Map(); // view -> the promise of its bytes, (heads, words, places)
    root.classList.add(className);
  }

  // ── what is chosen ──
  get chosen() { // {view: a number, head: "mean", "1", "2", …, word: a number}
    const { view, head } = this.shown ?? this.wanted;
    return { view: Number(view), head, word: this.word };
  }

  async choose(part) { // any part of `chosen`; what does not exist becomes what comes first
    if (part.word !== undefined) this.word = Number(part.word);
    for (const name of ["view", "head"]) if (part[name] !== undefined) this.wanted[name] = String(part[name]);
    if (this.subject) await this.update();
  }

  async show(subject) { // {title, note, words, views: [{name, heads, rows, columns, largest, weights}], …}
    this.subject = subject;
    await this.update();
  }

  async update() {
    const turn = ++this.turn, { subject, wanted } = this, views = Object.keys(subject.views);
    const one = (values, value) => (values.includes(value) ? value : values[0]), key = one(views, wanted.view);
    const view = subject.views[key], heads = Array.from({ length: view.heads }, (_, h) => String(h + 1));
    if (heads.length > 1) heads.unshift("mean");
    const head = one(heads, wanted.head);
    this.groups.view.offer(views, key, (number) => subject.views[number].name);
    this.groups.head.offer(heads, head);
    for (const kept of this.bytes.keys()) if (!subject.views.includes(kept)) this.bytes.delete(kept);
    const loaded = await this.loaded(view, subject, turn);
    if (turn !== this.turn || !loaded) return false; // something else was chosen meanwhile
    const [bytes, more] = loaded;
    if (!(this.word >= 0 && this.word < subject.words.length)) this.word = 0;
    const lights = subject.words.map((_, word) => sharesOf(subject, view, bytes, word, head));
    this.shown = { subject, view: key, head, lights, more };
    this.draw();
    return true;
  }

  bytesOf(view) {
    if (!this.bytes.has(view)) this.bytes.set(view, unpack(view.weights));
    return this.bytes.get(view);
  }

  async loaded(view, subject, turn) {
    try {
      return await Promise.all([this.bytesOf(view), this.load(subject)]);
    } catch ({ message }) {
      if (turn === this.turn) this.parts.caption.textContent = message;
    }
  }

  // ── elements ──
  part(tag, className, properties = {}, ...children) {
    return (this.parts[className] = make(tag, { className, ...properties }, ...children));
  }

  group(name, label) {
    const onChoose = (value) => this.change({ [name]: value });
    return (this.groups[name] = new Choices(name, { label, caption: label, onChoose })).element;
  }

  wordButton(word) {
    return make("button", { type: "button", tabIndex: -1 }, this.shown.subject.words[word]);
  }

  pickBy(group, onPress = () => {}) { // the words of an element by pointer, focus and arrow keys
    const wordOf = ({ target }) => [...group.children].findIndex((button) => button.contains(target));
    for (const event of ["click", "pointerover", "focusin"])
      group.addEventListener(event, (given) => wordOf(given) >= 0 && this.pick(wordOf(given)));
    group.addEventListener("click", (event) => wordOf(event) >= 0 && onPress(wordOf(event)));
    group.addEventListener("keydown", (event) => this.press(event, group));
  }

  press(event, group) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.pick(Math.min(this.shown.subject.words.length - 1, Math.max(0, this.word + by)));
    group.children[this.word]?.focus();
  }

  mark(...groups) { // the chosen word
    for (const group of groups) for (const [at, button] of [...group.children].entries()) {
      button.ariaPressed = String(at === this.word);
      button.tabIndex = at === this.word ? 0 : -1;
    }
  }

  remove() { // takes its elements away
    this.root.replaceChildren();
    this.root.classList.remove(this.className);
  }

  // ── choosing ──
  pick(word) {
    if (word === this.word) return;
    this.word = word;
    this.drawWord();
    this.onChange(this.chosen);
  }

  async change(part) { // by the person
    Object.assign(this.wanted, part);
    if (await this.update()) this.onChange(this.chosen);
  }
}
