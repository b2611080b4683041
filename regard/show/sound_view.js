// A recording with its transcript and, for each word, the moments where each head looked; it plays from any of them.

import { Paint, make, themeColours, unpack } from "./drawing.js";
import { WordsView } from "./words_view.js";

const SECOND = 80; // fewest pixels of a second
const TICKS = 7; // most marks of the axis after 0
const BETWEEN = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60]; // seconds between two of them
const ROOM = 0.9; // share of the axis after which there is no room for the name of a mark
const FAINT = 0.02; // share of the largest weight below which a curve has no line
const SURE = 0.2; // share of a word's largest weight from which it counts as being at a moment
const VEIL = 0.65; // opacity over moments without weight

export class SoundView extends WordsView {
  constructor(root, { loudness, scales, onChange }) {
    super(root, "sound-view", { onChange });
    Object.assign(this, { loudness, scales, pointed: undefined });
    this.build();
  }

  async load({ spectrogram }) { // what `show` takes has also: seconds, spectrogram, times, wav; a view its stride
    if (this.unpacked?.from !== spectrogram) this.unpacked = { from: spectrogram, levels: await unpack(spectrogram.levels) };
    return this.unpacked.levels;
  }

  build() {
    const name = (tag, className, label) => this.part(tag, className, { role: "group", ariaLabel: label, translate: false });
    this.root.append(
      make("div", { className: "controls" }, this.group("view", "View"), this.group("head", "Head")),
      name("div", "words", "Words"),
      this.part("audio", "audio", { controls: true, ariaLabel: "The recording" }),
      make("div", { className: "readout-line" }, this.part("p", "caption", { role: "status" }), this.part("p", "moment")),
      make("figure", {},
        this.part("div", "box", { tabIndex: 0, role: "group", ariaLabel: "Spectrogram, and each word over time" },
          this.part("div", "lanes", {},
            make("div", { className: "side" },
              make("div", { className: "above" }, this.part("div", "pitches", { ariaHidden: "true" }), this.part("span", "top-of-curves")),
              name("div", "names", "Every word")),
            this.part("div", "track", {},
              make("div", { className: "above" },
                make("div", { className: "loudness", role: "img", ariaLabel: "Spectrogram: low frequencies at the bottom" },
                  this.part("canvas", "levels"), this.part("canvas", "veil")),
                this.part("div", "axis", { ariaHidden: "true" }), this.part("div", "spans", { ariaHidden: "true" }),
                make("div", { className: "curves-box" }, this.part("div", "curves", { ariaHidden: "true" }))),
              make("div", { className: "strips-box" }, this.part("canvas", "strips")),
              this.part("div", "pointer", { hidden: true }), this.part("div", "cursor"))))),
      this.part("p", "note"));
    this.listen();
  }

  listen() {
    const { audio, track, words, names } = this.parts;
    for (const group of [words, names]) this.pickBy(group, (word) => this.play(this.startOf(word)));
    for (const name of ["play", "pause", "seeking", "seeked", "timeupdate", "loadedmetadata"])
      audio.addEventListener(name, () => this.follow());
    track.addEventListener("pointermove", (event) => this.point(event));
    track.addEventListener("pointerleave", () => this.point());
    track.addEventListener("click", (event) => this.play(this.timeAt(event)));
  }

  remove() {
    this.parts.audio.pause();
    super.remove();
  }

  themeChanged() {
    if (this.shown) this.drawStrips();
  }

  // ── drawing ──
  draw() {
    const { subject, view, lights } = this.shown, { parts } = this, { frames } = subject.spectrogram;
    const { columns, stride } = subject.views[view];
    const same = parts.audio.getAttribute("src") === subject.wav;
    if (!same && subject.wav) parts.audio.src = subject.wav;
    else if (!same) parts.audio.removeAttribute("src");
    parts.audio.hidden = !subject.wav;
    this.root.classList.toggle("plays", Boolean(subject.wav));
    const lanes = { "--words": subject.words.length, "--least": `${subject.seconds * SECOND}px`,
      "--steps": (columns * stride) / frames, "--spans": subject.times ? "1.5rem" : "0rem" };
    for (const [name, value] of Object.entries(lanes)) parts.lanes.style.setProperty(name, value);
    for (const name of ["words", "names"])
      parts[name].replaceChildren(...subject.words.map((_, word) => this.wordButton(word)));
    for (const button of parts.names.children) button.title = button.textContent;
    this.drawSpectrogram();
    this.drawStrips();
    this.top = Math.max(...lights.map(({ most }) => most)) || 1;
    parts["top-of-curves"].textContent = this.top.toPrecision(2);
    parts.curves.replaceChildren(curves(lights.map((each) => ridge(each.shares, each.most / this.top)), columns));
    parts.note.textContent = subject.note;
    this.drawWord();
    this.follow();
  }

  drawSpectrogram() {
    const { subject, more } = this.shown, { parts } = this, { frames, bands } = subject.spectrogram;
    paintOver(parts.levels, new Paint({ scale: this.loudness }, 255).picture(more, frames, bands));
    parts.pitches.replaceChildren(...(subject.spectrogram.pitches ?? []).map(([pitch, place]) => {
      const mark = make("span", {}, pitch);
      mark.style.bottom = share(place, 1);
      return mark;
    }));
    parts.axis.replaceChildren(...marks(subject.seconds).map((time) => {
      const mark = make("span", {}, time < ROOM * subject.seconds ? clock(time) : "");
      mark.style.left = share(time, subject.seconds);
      return mark;
    }));
    const middles = (subject.times ?? []).map(([start, end]) => (start + end) / 2);
    parts.spans.replaceChildren(...(subject.times ?? []).map(([start, end], word) => {
      const span = make("span", { title: subject.words[word] }, subject.words[word]);
      const reach = [word - 1, word + 1].flatMap((at) => (at in middles ? [Math.abs(middles[at] - middles[word])] : []));
      const wide = Math.max(end - start, Math.min(...reach, subject.seconds)); // a word has the room up to its neighbours
      Object.assign(span.style, { left: share(middles[word] - wide / 2, subject.seconds), width: share(wide, subject.seconds) });
      span.style.setProperty("--spoken", share(end - start, wide));
      return span;
    }));
  }

  drawStrips() { // one pixel for each word and step
    const { lights } = this.shown, paint = new Paint(themeColours(this.root, this.scales), 255);
    const columns = lights[0]?.columns ?? 1, bytes = new Uint8Array(lights.length * columns);
    lights.forEach(({ shares }, word) =>
      shares.forEach((each, step) => (bytes[word * columns + step] = Math.round(255 * each))));
    paintOver(this.parts.strips, paint.picture(bytes, columns, lights.length));
  }

  drawWord() { // all that depends on the chosen word
    const { subject, lights, view } = this.shown, { parts, word } = this, light = lights[word];
    this.mark(parts.words, parts.names);
    parts.curves.querySelector(".front").setAttribute("d", ridge(light.shares, light.most / this.top));
    const veil = make("canvas", { width: light.columns, height: 1 }), context = veil.getContext("2d");
    const cells = context.createImageData(light.columns, 1);
    light.shares.forEach((each, step) =>
      cells.data.set([...this.loudness[0], Math.round(255 * VEIL * (1 - each))], 4 * step));
    context.putImageData(cells, 0, 0);
    paintOver(parts.veil, veil);
    const peak = (light.shares.indexOf(Math.max(...light.shares)) + 0.5) * this.step, times = subject.times?.[word];
    const span = times ? `, ${times.map((time) => time.toFixed(2)).join(" to ")} s` : "";
    parts.caption.textContent = `“${subject.words[word]}”${span}: ${subject.views[view].name}; ` +
      `most at ${peak.toFixed(2)} s (${light.most.toPrecision(2)})`;
  }

  // ── time ──
  get step() { // seconds
    const { subject, view } = this.shown;
    return (subject.views[view].stride * subject.seconds) / subject.spectrogram.frames;
  }

  startOf(word) { // where it is played from
    const times = this.shown.subject.times?.[word];
    if (times) return times[0];
    const { shares } = this.shown.lights[word];
    let step = shares.indexOf(Math.max(...shares));
    while (step > 0 && shares[step - 1] >= SURE) step--;
    return step * this.step;
  }

  wordAt(time) { // -1: none
    const { subject, lights } = this.shown, step = Math.floor(time / this.step);
    if (subject.times) return subject.times.findIndex(([start, end]) => start <= time && time < end);
    const weights = lights.map(({ shares, most }) => (shares[step] >= SURE ? shares[step] * most : 0));
    const largest = Math.max(0, ...weights);
    return largest ? weights.indexOf(largest) : -1;
  }

  timeAt({ clientX }) {
    const { left, width } = this.parts.track.getBoundingClientRect();
    return Math.min(1, Math.max(0, (clientX - left) / width)) * this.shown.subject.seconds;
  }

  point(event) { // at a moment, or nowhere
    const { parts } = this;
    parts.pointer.hidden = !event || !this.shown;
    if (parts.pointer.hidden) return this.say(this.parts.audio.currentTime);
    const time = this.timeAt(event);
    parts.pointer.style.left = share(time, this.shown.subject.seconds);
    this.say(time);
    if (event.target !== parts.strips) return;
    const { top, height } = parts.strips.getBoundingClientRect(), { length } = this.shown.lights;
    this.pick(Math.min(length - 1, Math.max(0, Math.floor(((event.clientY - top) / height) * length))));
  }

  say(time) { // what is at a moment
    const { subject, lights } = this.shown, word = this.wordAt(time);
    const weight = word < 0 ? "" : lights[word].shares[Math.floor(time / this.step)] * lights[word].most;
    this.parts.moment.textContent = `${time.toFixed(2)} s` +
      (word < 0 ? "" : `: “${subject.words[word]}”${weight ? ` ${weight.toPrecision(2)}` : ""}`);
    return word;
  }

  play(time) {
    const { audio } = this.parts;
    if (audio.hidden) return;
    audio.currentTime = time;
    audio.play().catch(() => {}); // without a device the moment is marked all the same
  }

  follow() { // marks the moment, while it plays on each frame of the screen
    const { parts } = this, { audio, cursor, box } = parts;
    if (!this.shown) return;
    const { seconds } = this.shown.subject, time = Math.min(seconds, audio.currentTime);
    cursor.style.left = share(time, seconds);
    cursor.hidden = audio.hidden;
    const now = audio.hidden || (!time && audio.paused) ? -1 : this.wordAt(time);
    for (const group of [parts.words, parts.names, parts.spans])
      for (const [at, element] of [...group.children].entries()) element.classList.toggle("now", at === now);
    if (parts.pointer.hidden) this.say(time);
    cancelAnimationFrame(this.frame);
    if (audio.paused || !this.root.isConnected) return;
    const { offsetLeft } = cursor, right = box.scrollLeft + box.clientWidth - parts.names.offsetWidth;
    if (offsetLeft > right - 24 || offsetLeft < box.scrollLeft) box.scrollLeft = offsetLeft - 24;
    this.frame = requestAnimationFrame(() => this.follow());
  }
}

const share = (part, whole) => `${(100 * part) / whole}%`;

function marks(seconds) { // times on the axis
  const between = BETWEEN.find((each) => seconds / each <= TICKS) ?? 60 * Math.ceil(seconds / 60 / TICKS);
  return Array.from({ length: Math.floor(seconds / between + 1e-6) + 1 }, (_, at) => at * between);
}

function clock(time) { // 0.5 s, 1:05
  if (time < 60) return `${Number(time.toFixed(2))} s`;
  return `${Math.floor(time / 60)}:${String(Math.round(time % 60)).padStart(2, "0")}`;
}

function paintOver(canvas, picture) {
  Object.assign(canvas, { width: picture.width, height: picture.height });
  canvas.getContext("2d").drawImage(picture, 0, 0);
}

function ridge(shares, scale) { // a curve over the steps, where it is above 0, in a box that is 100 high
  let path = "", isOpen = false;
  shares.forEach((each, step) => {
    const isHigh = each > FAINT;
    if (isHigh && !isOpen) path += `M${step - 0.5} 100`;
    if (isHigh || isOpen) path += `L${step + 0.5} ${isHigh ? (100 - 96 * each * scale).toFixed(1) : 100}`;
    isOpen = isHigh;
  });
  return isOpen ? `${path}L${shares.length + 0.5} 100` : path;
}

function curves(paths, columns) {
  const named = (tag, given) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
    return element;
  };
  const picture = named("svg", { viewBox: `0 0 ${columns} 100`, preserveAspectRatio: "none" });
  picture.append(...paths.map((d) => named("path", { d })), named("path", { class: "front" }));
  return picture;
}
