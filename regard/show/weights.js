// From the views of a sentence to what is drawn: one matrix of bytes, 255 for the weight 1.

import { brief } from "./drawing.js";

export const sameTokens = (one, other) => one.length === other.length && one.every((token, i) => token === other[i]);

export class Matrix {
  constructor({ rows, columns }, bytes) {
    this.rows = rows;
    this.columns = columns;
    this.bytes = bytes; // (rows, columns)
    this.words = { rows: rows.map(brief), columns: columns.map(brief) };
    this.largest = largestOf(bytes);
  }

  at(row, column) {
    return this.bytes[row * this.columns.length + column];
  }
}

export function largestOf(bytes) {
  let largest = 0;
  for (let i = 0; i < bytes.length; i++) if (bytes[i] > largest) largest = bytes[i];
  return largest;
}

export function oneHead(view, bytes, head) { // (heads, rows, columns) -> (rows, columns); heads count from 1
  const size = view.rows.length * view.columns.length;
  return bytes.subarray(size * (head - 1), size * head);
}

function overHeads(view, bytes, head) { // "mean" or "max" of all heads, or one of them
  if (head > 0) return { sums: oneHead(view, bytes, head), count: 1 };
  const sums = new Uint32Array(view.rows.length * view.columns.length), largest = head === "max";
  for (let h = 1; h <= view.heads; h++) {
    const one = oneHead(view, bytes, h);
    if (largest) for (let i = 0; i < sums.length; i++) sums[i] = Math.max(sums[i], one[i]);
    else for (let i = 0; i < sums.length; i++) sums[i] += one[i];
  }
  return { sums, count: largest ? 1 : view.heads };
}

export function average(views, unpacked, head) { // over layers, of what `head` asks for; rounded once
  const layers = views.map((view, layer) => overHeads(view, unpacked[layer], head));
  const mean = new Float64Array(layers[0].sums.length), rounded = new Uint8Array(mean.length);
  for (const { sums, count } of layers)
    for (let i = 0; i < mean.length; i++) mean[i] += sums[i] / (count * layers.length);
  for (let i = 0; i < mean.length; i++) rounded[i] = Math.round(mean[i]);
  return rounded;
}

export function shrunk(bytes, rows, columns, most) { // the largest of each block, so that at most `most` lines remain
  const block = Math.ceil(Math.max(rows, columns) / most) || 1;
  const height = Math.ceil(rows / block), width = Math.ceil(columns / block), found = new Uint8Array(height * width);
  if (block === 1) return { bytes, width, height, block };
  for (let row = 0; row < rows; row++) {
    const line = Math.floor(row / block) * width, from = row * columns;
    for (let at = 0; at < width; at++)
      for (let column = at * block; column < Math.min(columns, (at + 1) * block); column++)
        if (bytes[from + column] > found[line + at]) found[line + at] = bytes[from + column];
  }
  return { bytes: found, width, height, block };
}
