// Charts that the server has drawn: its SVG, put in as a picture without style or script, and its files.

import { make, pngOf, saveBlob, themeColours } from "/show/drawing.js";
import { SCALES } from "./palette.js";

export function drawing(svg) {
  // an element
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml"),
    root = parsed.documentElement;
  if (root.localName !== "svg" || parsed.querySelector("parsererror"))
    return make("p", {}, "This chart cannot be drawn.");
  for (const each of root.querySelectorAll("style, script, foreignObject, a, image, use")) each.remove(); // studio.css colours it
  return document.importNode(root, true);
}

export function fileButtons(name, { svg, data }) {
  // functions that give the file's text
  const button = (label, act) => {
    const made = make("button", { type: "button", className: "plain" }, label);
    made.addEventListener("click", act);
    return made;
  };
  return make(
    "div",
    { className: "files" },
    button("Save SVG", () => saveBlob(new Blob([svg()], { type: "image/svg+xml" }), name, ".svg")),
    button("Save PNG", async () => saveBlob(await pngOf(svg()), name, ".png")),
    button("Save JSON", () =>
      saveBlob(new Blob([JSON.stringify(data())], { type: "application/json" }), name, ".json"),
    ),
  );
}

export function asFile(element) {
  // the text of an SVG element, coloured as it is on the screen
  const copy = element.cloneNode(true),
    { ink, panel, quiet } = themeColours(document.body, SCALES);
  const [, , width, height] = copy.getAttribute("viewBox").split(" ");
  const ground = document.createElementNS(copy.namespaceURI, "rect"),
    style = document.createElementNS(copy.namespaceURI, "style");
  for (const [name, value] of Object.entries({ width, height, fill: panel })) ground.setAttribute(name, value);
  style.textContent = `text{fill:${ink};font:14px system-ui,sans-serif}.grid{stroke:${quiet};stroke-opacity:.3}`;
  copy.prepend(style, ground);
  return new XMLSerializer().serializeToString(copy).replace(/[\x00-\x08\x0b\x0c\x0e-\x1f]/g, "�");
}

export class Chart {
  constructor({ title }) {
    this.box = make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: title });
    this.element = make(
      "figure",
      { className: "chart" },
      this.box,
      fileButtons(title, {
        svg: () => asFile(this.box.firstChild),
        data: () => ({ title, curves: this.chart.curves }),
      }),
    );
  }

  show(chart) {
    if (chart.svg !== this.chart?.svg) this.box.replaceChildren(drawing(chart.svg));
    this.chart = chart;
    return this.element;
  }
}

export class Charts {
  // by title, so that the focus stays in one that grows
  constructor() {
    this.element = make("div", { className: "charts" });
    this.every = new Map();
  }

  show(charts) {
    const before = this.every;
    this.every = new Map(charts.map((chart) => [chart.title, before.get(chart.title) ?? new Chart(chart)]));
    const shown = charts.map((chart) => this.every.get(chart.title).show(chart));
    if (shown.length !== this.element.children.length || shown.some((each, at) => each !== this.element.children[at]))
      this.element.replaceChildren(...shown);
  }
}
