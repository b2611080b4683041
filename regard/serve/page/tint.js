// Colours an element by a weight from 0 to 1, on the scale of the heat maps; follows the theme.

import { Paint, themeColours } from "/show/drawing.js";
import { SCALES } from "./palette.js";

let paint;

function repaint(element) {
  const byte = Number(element.dataset.byte);
  Object.assign(element.style, { background: paint.fill(byte), color: paint.inkOn(byte) });
}

export function tint(element, weight) {
  paint ??= new Paint(themeColours(document.body, SCALES), 255);
  element.dataset.byte = Math.round(255 * Math.min(1, Math.max(0, weight)));
  repaint(element);
  return element;
}

export const themePaint = () => (paint ??= new Paint(themeColours(document.body, SCALES), 255));

addEventListener("themechange", () => {
  paint = new Paint(themeColours(document.body, SCALES), 255);
  for (const element of document.querySelectorAll("[data-byte]")) repaint(element);
});
