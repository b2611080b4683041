// The tree of beam search: a column per step, the likeliest hypothesis on top; pruned branches are faint, the best strong.

import { brief, make } from "/show/drawing.js";
import { logProb } from "./bars.js";
import { fileButtons } from "./charts.js";
import { themePaint } from "./tint.js";

const SVG = "http://www.w3.org/2000/svg";
const [ACROSS, DOWN, TOP, LEFT, FONT] = [118, 34, 40, 28, 14]; // pixels
const LONG = 12; // characters of a token that are shown

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export class Tree {
  constructor(onStep) {
    this.box = make("div", { className: "scroll tree", tabIndex: 0, role: "region", ariaLabel: "Tree of beam search" });
    this.element = make(
      "figure",
      { className: "card", hidden: true },
      make("h2", {}, "Beam search"),
      make(
        "p",
        { className: "quiet" },
        "A column per step, the likeliest hypothesis on top. The best path is strong; what was pruned is faint.",
      ),
      this.box,
      fileButtons("beam-search", { svg: () => this.text(), data: () => this.tree }),
    );
    this.box.addEventListener("click", ({ target }) => {
      const step = target.closest("[data-step]")?.dataset.step;
      if (step) onStep(Number(step) - 1);
    });
    addEventListener("themechange", () => this.tree && this.draw());
  }

  show(tree, at) {
    this.element.hidden = !tree || tree.width < 2;
    if (this.element.hidden) return;
    if (this.tree !== tree) {
      this.tree = tree;
      this.draw();
    }
    this.light(at);
  }

  draw() {
    const { nodes, width } = this.tree,
      paint = themePaint(),
      steps = Math.max(...nodes.map((node) => node.step));
    const places = new Map(),
      columns = Array.from({ length: steps }, () => []);
    for (const node of nodes) columns[node.step - 1].push(node);
    for (const column of columns)
      column
        .sort((one, other) => other.log_prob - one.log_prob)
        .forEach((node, at) => places.set(node.id, [LEFT + (node.step - 1) * ACROSS + 58, TOP + at * DOWN + DOWN / 2]));
    const wide = LEFT + steps * ACROSS + 20,
      high = TOP + Math.max(...columns.map((column) => column.length)) * DOWN + 12;
    const best = nodes
      .filter((node) => node.best)
      .map((node) => node.token)
      .join(" ");
    this.picture = shape("svg", {
      xmlns: SVG,
      viewBox: `0 0 ${wide} ${high}`,
      width: wide,
      height: high,
      role: "img",
      "aria-label": `Beam search with ${width} hypotheses and ${steps} steps. The best path: ${best}.`,
      "font-family": "system-ui, sans-serif",
    });
    this.lit = shape("rect", {
      x: 0,
      y: 4,
      width: ACROSS - 8,
      height: high - 8,
      rx: 8,
      fill: paint.accent,
      "fill-opacity": 0.13,
    });
    this.picture.append(this.lit);
    for (let step = 1; step <= steps; step++)
      this.picture.append(
        shape(
          "text",
          {
            x: LEFT + (step - 1) * ACROSS + 50,
            y: 24,
            "text-anchor": "middle",
            "font-size": 12,
            fill: paint.quiet,
            "data-step": step,
          },
          String(step),
        ),
      );
    const order = [...nodes].sort((one, other) => one.best - other.best || one.kept - other.kept);
    for (const node of order) this.picture.append(this.branch(node, places, paint));
    for (const node of order) this.picture.append(this.leaf(node, places.get(node.id), paint));
    this.box.replaceChildren(this.picture);
  }

  branch(node, places, paint) {
    const [x, y] = places.get(node.id),
      end = x - 44;
    const [fromX, fromY] =
      node.parent === null
        ? [LEFT - 16, TOP + DOWN / 2]
        : [places.get(node.parent)[0] + 44, places.get(node.parent)[1]];
    const bend = (end - fromX) / 2;
    return shape("path", {
      d: `M ${fromX} ${fromY} C ${fromX + bend} ${fromY} ${end - bend} ${y} ${end} ${y}`,
      fill: "none",
      stroke: node.best ? paint.accent : paint.quiet,
      "stroke-width": node.best ? 3 : 1.25,
      "stroke-opacity": node.best ? 1 : node.kept ? 0.7 : 0.3,
      ...(node.kept ? {} : { "stroke-dasharray": "3 3" }),
    });
  }

  leaf(node, [x, y], paint) {
    const group = shape("g", { "data-step": node.step, opacity: node.kept ? 1 : 0.62, cursor: "pointer" });
    const name = [...node.token].length > LONG ? [...brief(node.token)].slice(0, LONG - 1).join("") + "…" : node.token;
    group.append(
      shape(
        "title",
        {},
        `${node.token}: log-probability so far ${logProb(node.log_prob)}${node.score === null ? "" : `, score ${logProb(node.score)}`}`,
      ),
      shape("rect", {
        x: x - 44,
        y: y - 12,
        width: 88,
        height: 24,
        rx: 6,
        fill: paint.panel,
        stroke: node.best ? paint.accent : paint.quiet,
        "stroke-width": node.best ? 2 : 1,
        "stroke-opacity": node.best ? 1 : 0.45,
      }),
      shape(
        "text",
        {
          x,
          y: y + 4.5,
          "text-anchor": "middle",
          "font-size": FONT - 1,
          "font-weight": node.best ? 650 : 400,
          fill: node.finished ? paint.accent : paint.ink,
        },
        name,
      ),
    );
    return group;
  }

  light(at) {
    // the column of a step
    this.lit.setAttribute("x", LEFT + at * ACROSS + 58 - 44 - 7);
    this.lit.setAttribute("width", 88 + 14);
    const x = LEFT + at * ACROSS,
      { scrollLeft, clientWidth } = this.box;
    if (x < scrollLeft || x + ACROSS > scrollLeft + clientWidth) this.box.scrollLeft = x - clientWidth / 2;
  }

  text() {
    const copy = this.picture.cloneNode(true),
      { width, height } = this.picture.viewBox.baseVal;
    copy.firstChild.remove();
    copy.prepend(shape("rect", { width, height, fill: themePaint().panel }));
    return new XMLSerializer().serializeToString(copy).replace(/[\x00-\x08\x0b\x0c\x0e-\x1f]/g, "�");
  }
}
