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
  if (head > 0) return oneHead(view, bytes, head);
  const found = new Float64Array(view.rows.length * view.columns.length);
  for (let h = 1; h <= view.heads; h++) {
    const one = oneHead(view, bytes, h);
    if (head === "max") for (let i = 0; i < found.length; i++) found[i] = Math.max(found[i], one[i]);
    else for (let i = 0; i < found.length; i++) found[i] += one[i];
  }
  return head === "max" ? found : found.map((sum) => sum / view.heads);
}

export function average(views, unpacked, head) { // over layers, of what `head` asks for; rounded once
  if (views.length === 1 && head > 0) return oneHead(views[0], unpacked[0], head);
  const layers = views.map((view, layer) => overHeads(view, unpacked[layer], head));
  const mean = new Uint8Array(layers[0].length);
  for (let i = 0; i < mean.length; i++) {
    let sum = 0;
    for (const layer of layers) sum += layer[i];
    mean[i] = Math.round(sum / layers.length);
  }
  return mean;
}

export function shrunk(bytes, rows, columns, most) { // the largest of each block, so that at most `most` lines remain
  const block = Math.ceil(Math.max(rows, columns) / most) || 1;
  const height = Math.ceil(rows / block), width = Math.ceil(columns / block), found = new Uint8Array(height * width);
  if (block === 1) return { bytes, width, height, block };
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
    const at = Math.floor(row / block) * width + Math.floor(column / block);
    found[at] = Math.max(found[at], bytes[row * columns + column]);
  }
  return { bytes: found, width, height, block };
}
