// The words of a text, coloured by their importance for its label: each row of the map of /v1/look as a line of words.

import { make, unpack } from "/show/drawing.js";
import { tint } from "./tint.js";

const SHOWN = 0.05; // weights below it are coloured, without a number

export async function importance({ views: [view], note }) {
  const { rows, columns, weights, heads } = view,
    bytes = await unpack(weights),
    size = rows.length * columns.length;
  const lines = rows.map((row, at) => {
    const mean = columns.map((_, column) => {
      let sum = 0;
      for (let head = 0; head < heads; head++) sum += bytes[head * size + at * columns.length + column];
      return sum / heads / 255;
    });
    const most = Math.max(...mean) || 1;
    return make(
      "div",
      {},
      make("p", { className: "name" }, row.replaceAll("␣", " ")),
      make(
        "p",
        { className: "tinted", dir: "auto", translate: false },
        ...columns.map((word, column) => tinted(word, mean[column], mean[column] / most)),
      ),
    );
  });
  return make(
    "section",
    { className: "importance" },
    make("h3", {}, "Importance of each word"),
    ...lines,
    make(
      "p",
      { className: "quiet" },
      [note, "The number is the weight; the colour is its share of the largest."].filter(Boolean).join(". "),
    ),
  );
}

export function tinted(word, weight, share) {
  const shown = make("span", { className: "word" }, make("bdi", {}, word));
  if (weight >= SHOWN) shown.append(make("small", {}, weight.toFixed(2).replace(/^0/, "")));
  tint(shown.firstChild, share);
  return shown;
}
