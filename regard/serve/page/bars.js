// Rows of a name, a bar and a number: labels with their probabilities, the likeliest next tokens.

import { make } from "/show/drawing.js";

export function percent(share) {
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  if (share > 0.9995 && share < 1) return "> 99.9 %";
  return `${(100 * share).toFixed(share < 0.0995 || (share > 0.9949 && share < 1) ? 1 : 0)} %`;
}
export const logProb = (value) => (value <= 0 ? "−" : "+") + Math.abs(value).toFixed(2);

export function barRow(name, share, { tag = "li", ...properties } = {}, ...more) {
  const bar = make("span", { className: "bar", ariaHidden: "true" }),
    fill = make("i");
  fill.style.width = `${100 * Math.min(1, share)}%`;
  bar.append(fill);
  return make(
    tag,
    { ...properties, className: `bar-row ${properties.className ?? ""}` },
    make("bdi", { className: "bar-name", translate: false }, name, ...more),
    bar,
    make("span", { className: "bar-number" }, percent(share)),
  );
}

export function barList(probabilities, chosen) {
  // likeliest first
  const ranked = Object.entries(probabilities).sort(([, one], [, other]) => other - one);
  return make(
    "ul",
    { className: "bars" },
    ...ranked.map(([name, share]) => barRow(name, share, { className: name === chosen ? "chosen" : "" })),
  );
}
