// SVG pictures as text: shapes, and the frame around them with a title above and a note below.

import { FONT } from "./drawing.js";

export const xml = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

export const svgRect = (x, y, width, height, fill) =>
  `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${fill}"/>`;

export const svgText = (words, x, y, fill, size, { anchor = "start", turn = 0 } = {}) =>
  `<text transform="translate(${x} ${y}) rotate(${turn})" dy="0.35em" fill="${fill}" ` +
  `text-anchor="${anchor}" font-size="${size}">${xml(words)}</text>`;

function folded(text, most) { // lines of at most so many characters, broken at spaces
  const lines = [""];
  for (const word of text.split(" "))
    if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push(word);
    else lines.push(`${lines.pop()} ${word}`.trimStart());
  return lines;
}

export function svgPicture({ title, name, about, paint, font, width: least, height: inner, shapes }) {
  const width = Math.max(least, 480), large = Math.max(font, width / 80), small = 0.8 * large;
  const notes = about.filter(Boolean).flatMap((text) => folded(text, (width - 16) / (0.58 * small)));
  const height = inner + (2.5 + 1.5 * 0.8 * notes.length) * large, line = (i) => 2.5 * large + inner + 1.5 * small * i;
  return [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" ` +
    `height="${height}" font-family="${FONT}"><title>${xml(title)}</title>`,
    svgRect(0, 0, width, height, paint.panel), svgText(name, 8, large, paint.quiet, large),
    ...notes.map((text, i) => svgText(text, 8, line(i), paint.quiet, small)),
    `<g transform="translate(0 ${2 * large})">`, ...shapes].join("\n") + "</g></svg>";
}
