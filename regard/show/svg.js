// SVG pictures as text: shapes, and the frame around them with a title above and a note below.

import { FONT } from "./drawing.js";

export const xml = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

export const svgRect = (x, y, width, height, fill) =>
  `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${fill}"/>`;

export const svgText = (words, x, y, fill, size, { anchor = "start", turn = 0 } = {}) =>
  `<text transform="translate(${x} ${y}) rotate(${turn})" dy="0.35em" fill="${fill}" ` +
  `text-anchor="${anchor}" font-size="${size}">${xml(words)}</text>`;

export function svgPicture({ title, name, about, paint, font, width: least, height: inner, shapes }) {
  const width = Math.max(least, 480), large = Math.max(font, width / 80), height = inner + 4 * large;
  return [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" ` +
    `height="${height}" font-family="${FONT}"><title>${xml(title)}</title>`,
    svgRect(0, 0, width, height, paint.panel), svgText(name, 8, large, paint.quiet, large),
    svgText(about, 8, height - large, paint.quiet, 0.8 * large), `<g transform="translate(0 ${2 * large})">`,
    ...shapes].join("\n") + "</g></svg>";
}
