// A scrolling box with two canvases that cover what is in sight, however large the drawing is.

import { make } from "./drawing.js";

export class ScrolledCanvas {
  constructor(onScroll) {
    this.base = make("canvas"); // what stays
    this.overlay = make("canvas"); // what pointing changes
    this.stage = make("div", { className: "stage" }, this.base, this.overlay);
    this.full = make("div", { className: "full" }, this.stage);
    this.box = make("div", { className: "box", tabIndex: 0, role: "application" }, this.full);
    this.box.addEventListener("scroll", onScroll);
  }

  get tallest() {
    return Math.max(300, innerHeight * 0.78);
  }

  get room() {
    return this.box.offsetWidth;
  }

  fit(width, height) { // the size of the whole drawing
    Object.assign(this.full.style, { width: width + "px", height: height + "px" });
    this.box.style.maxHeight = this.tallest + "px";
    const wide = Math.min(this.box.clientWidth, width), high = Math.min(this.box.clientHeight, height);
    Object.assign(this.stage.style, { width: wide + "px", height: high + "px" });
    for (const canvas of [this.base, this.overlay]) {
      canvas.width = Math.round(wide * devicePixelRatio);
      canvas.height = Math.round(high * devicePixelRatio);
      canvas.getContext("2d").setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    }
  }

  get inSight() { // the part of the drawing under the canvases
    const { scrollLeft, scrollTop } = this.box, { clientWidth: width, clientHeight: height } = this.stage;
    return { x: Math.round(scrollLeft), y: Math.round(scrollTop), width, height };
  }
}

export function range(start, length, size, count) { // the rows or columns that a stretch of pixels touches
  const first = Math.max(0, Math.floor(start / size)), last = Math.min(count, Math.ceil((start + length) / size));
  return Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i);
}

export function widestOf(words, context, font) { // in ems
  context.font = `100px ${font}`;
  return Math.max(0, ...words.map((word) => context.measureText(word).width)) / 100;
}
