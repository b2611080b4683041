// One matrix as a heat map: a square per weight, words on both sides.

import { FONT, short, weightOf } from "./drawing.js";
import { ScrolledCanvas, range, widestOf } from "./scrolled_canvas.js";
import { svgRect, svgText } from "./svg.js";

const MANY = 64; // more words than this are fitted whole; fewer are drawn large enough to read

export class HeatMap {
  static hint = "Point at a word or a square, or step into the map and use the arrow keys.";

  constructor({ onPick }) {
    this.canvas = new ScrolledCanvas(() => this.draw());
    this.element = this.canvas.box;
    this.onPick = onPick;
    this.sizes = [1, 64]; // of a square
    for (const name of ["pointermove", "pointerdown"])
      this.canvas.overlay.addEventListener(name, (event) => this.point(event));
    this.element.addEventListener("keydown", (event) => this.press(event));
  }

  static stretches(view) { // the weights of long rows are small
    return view.columns.length > MANY;
  }

  show({ matrix, name, paint, size, row, column }) { // `size` 0: as large as fits
    Object.assign(this, { matrix, paint, row, column });
    this.picture = paint.picture(matrix.bytes, matrix.columns.length, matrix.rows.length);
    this.element.ariaLabel = `Heat map: ${name}. ${matrix.rows.length} rows, ${matrix.columns.length} columns.`;
    const context = this.canvas.base.getContext("2d"), { room, tallest } = this.canvas;
    this.widest = {
      rows: widestOf(matrix.words.rows, context, FONT),
      columns: widestOf(matrix.words.columns, context, FONT),
    };
    const least = size || (Math.max(matrix.rows.length, matrix.columns.length) > MANY ? 1 : 20);
    for (let cell = size || 56; cell >= least; cell--) {
      this.shape = this.plan(Math.round(cell * devicePixelRatio) / devicePixelRatio); // squares of whole pixels
      if (this.shape.width <= room && this.shape.height <= tallest) break;
    }
    this.size = this.shape.cell;
    this.canvas.fit(this.shape.width, this.shape.height);
    this.draw();
  }

  plan(cell) { // squares `cell` wide; words to the left, and above them level, slanted or upright, as they fit
    const { rows, columns } = this.matrix, font = Math.min(18, Math.max(11, Math.round(0.3 * cell + 4)));
    const wide = this.widest.columns * font, angle = wide < cell - 4 ? 0 : cell >= 22 ? 45 : 90;
    const top = Math.round(angle ? Math.sin((angle * Math.PI) / 180) * (wide + 2.4 * font) + font : 2.8 * font);
    const left = Math.round(this.widest.rows * font) + 12, slack = angle === 45 ? Math.ceil(0.71 * (wide + font)) : 8;
    return { cell, font, angle, top, left, width: left + columns.length * cell + slack,
      height: top + rows.length * cell + 4, step: Math.ceil(14 / cell), gap: cell >= 20 ? 2 : cell >= 8 ? 1 : 0 };
  }

  // ── drawing ──
  draw() { // what is in sight
    const { matrix, paint, shape: { cell, gap, left, top } } = this, area = this.canvas.inSight;
    const context = this.canvas.base.getContext("2d"), x = left - area.x, y = top - area.y;
    const wide = matrix.columns.length * cell, high = matrix.rows.length * cell;
    const rows = range(area.y, area.height - top, cell, matrix.rows.length);
    const columns = range(area.x, area.width - left, cell, matrix.columns.length);
    context.fillStyle = paint.panel;
    context.fillRect(0, 0, area.width, area.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, x, y, wide, high);
    if (gap) for (const row of rows) context.fillRect(x, y + (row + 1) * cell - gap, wide, gap);
    if (gap) for (const column of columns) context.fillRect(x + (column + 1) * cell - gap, y, gap, high);
    context.font = `${Math.min(15, Math.round(cell * 0.32))}px ${FONT}`;
    Object.assign(context, { textAlign: "center", textBaseline: "middle" });
    if (cell >= 30) for (const row of rows) for (const column of columns) {
      const byte = matrix.at(row, column);
      context.fillStyle = paint.inkOn(byte);
      if (byte > 1) context.fillText(short(byte), x + (column + 0.5) * cell - gap / 2, y + (row + 0.5) * cell);
    }
    this.label(context, area, -1, -1);
    this.light(this.row, this.column);
  }

  label(context, area, row, column) { // words on both sides; the chosen and those they look at stand out
    const { matrix, paint, shape: { cell, font, step, angle, left, top } } = this, origin = context.getTransform();
    const free = (i, own) => i === own || (i % step === 0 && (own < 0 || Math.abs(i - own) * cell >= 14));
    const go = (x, y, degrees = 0) => context.setTransform(origin.translate(x, y).rotate(-degrees));
    const cover = (width, height) => { // the ground of the words, over what has scrolled under it
      go(0, 0);
      context.fillStyle = paint.panel;
      context.fillRect(0, 0, width, height);
    };
    const put = (text, own, byte) => {
      context.fillStyle = own ? paint.accent : row + column === -2 || byte >= 13 ? paint.ink : paint.quiet;
      context.font = `${own ? "bold " : ""}${font}px ${FONT}`;
      context.fillText(text, 0, 0);
    };
    cover(left, area.height);
    Object.assign(context, { textAlign: "right", textBaseline: "middle" });
    for (const r of range(area.y, area.height - top, cell, matrix.rows.length).filter((i) => free(i, row))) {
      go(left - 7, top - area.y + (r + 0.5) * cell);
      put(matrix.words.rows[r], r === row, row < 0 ? matrix.at(r, column) : 0);
    }
    cover(area.width, top - (step > 1 ? font / 2 : 0));
    context.textAlign = angle ? "left" : "center";
    for (const c of range(area.x, area.width - left, cell, matrix.columns.length).filter((i) => free(i, column))) {
      const byte = row < 0 ? 0 : matrix.at(row, c), word = matrix.words.columns[c];
      go(left - area.x + (c + 0.5) * cell, top - (angle ? 7 : font), angle);
      put(word, c === column, byte);
      context.translate(angle ? context.measureText(word).width + 6 : 0, angle ? 0 : -font * 1.2);
      if (byte > 1 && (step === 1 || c === column)) put(short(byte), c === column, byte);
    }
    cover(left - font / 2, top - font / 2);
    go(0, 0);
  }

  light(row, column) { // all that pointing changes
    Object.assign(this, { row, column });
    const { matrix, paint, shape: { cell, gap, left, top } } = this, area = this.canvas.inSight, side = cell - gap;
    const context = this.canvas.overlay.getContext("2d"), x = left - area.x, y = top - area.y;
    const outline = (x, y, width, height, line) => {
      Object.assign(context, { strokeStyle: paint.accent, lineWidth: line });
      context.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
    };
    context.clearRect(0, 0, area.width, area.height);
    if (row >= 0) outline(x, y + row * cell, matrix.columns.length * cell - gap, side, cell > 8 ? 2 : 0.5);
    if (column >= 0)
      outline(x + column * cell, y, side, matrix.rows.length * cell - gap, row < 0 && cell > 8 ? 2 : 0.5);
    if (row >= 0 && column >= 0)
      outline(x + column * cell - 1, y + row * cell - 1, side + 2, side + 2, cell > 8 ? 4 : 2);
    if (row >= 0 || column >= 0) this.label(context, area, row, column);
  }

  // ── pointing and keys ──
  pick(row, column) { // `light` follows, at most once per frame
    Object.assign(this, { row, column });
    this.onPick(row, column);
  }

  point({ offsetX, offsetY }) {
    const { matrix, shape: { cell, left, top, angle } } = this, { x, y } = this.canvas.inSight;
    const slant = angle === 45 ? Math.max(0, top - 7 - offsetY) : 0; // slanted words lean to the right
    const column = Math.floor((offsetX - slant - left + x) / cell), row = Math.floor((offsetY - top + y) / cell);
    const inRow = offsetY >= top && row < matrix.rows.length;
    const inColumn = offsetX >= left && column >= 0 && column < matrix.columns.length;
    if (inRow || inColumn) this.pick(inRow ? row : -1, inColumn ? column : -1);
  }

  press(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") this.pick(-1, -1);
    if (!step || event.altKey || event.ctrlKey || event.metaKey || !this.matrix.bytes.length) return;
    event.preventDefault();
    const first = this.row < 0 && this.column < 0;
    const move = (at, by, count) => (first ? 0 : Math.min(count - 1, Math.max(0, Math.max(at, 0) + by)));
    const { rows, columns } = this.matrix;
    this.pick(move(this.row, step[0], rows.length), move(this.column, step[1], columns.length));
    this.reveal();
  }

  reveal() { // scrolls no further than the chosen square asks for
    const area = this.canvas.inSight, { cell, left, top } = this.shape;
    const into = (at, from, room) => (at < 0 ? from : Math.min(at * cell, Math.max(from, (at + 1) * cell - room)));
    this.element.scrollTo(into(this.column, area.x, area.width - left), into(this.row, area.y, area.height - top));
  }

  // ── files ──
  svg() { // squares and words as shapes; of a huge map, only the squares that matter
    const { matrix, paint } = this, shape = this.plan(matrix.columns.length > MANY ? 16 : 40);
    const { cell, gap, font, left, top, angle, width, height } = shape, side = cell - gap;
    const least = matrix.bytes.length > 10000 ? 3 : 1, count = matrix.columns.length;
    const shapes = [svgRect(left, top, count * cell - gap, matrix.rows.length * cell - gap, paint.fill(0))];
    for (const [column, word] of matrix.words.columns.entries()) shapes.push(svgText(word, left + (column + 0.5) * cell,
      top - (angle ? 7 : font), paint.ink, font, { turn: -angle, anchor: angle ? "start" : "middle" }));
    for (const [row, word] of matrix.words.rows.entries())
      shapes.push(svgText(word, left - 7, top + (row + 0.5) * cell, paint.ink, font, { anchor: "end" }));
    matrix.bytes.forEach((byte, i) => {
      const x = left + (i % count) * cell, y = top + Math.floor(i / count) * cell;
      if (byte >= least) shapes.push(svgRect(x, y, side, side, paint.fill(byte)));
      if (byte > 1 && cell >= 30)
        shapes.push(svgText(short(byte), x + side / 2, y + side / 2, paint.inkOn(byte), 12, { anchor: "middle" }));
    });
    return { width, height, font, shapes, about: least > 1 ? "Weights under 0.01 are left out." : "" };
  }

  facts() { // for JSON
    const { rows, columns } = this.matrix, cells = (row) => columns.map((_, column) => this.matrix.at(row, column));
    return { rows, columns, weights: rows.map((_, row) => cells(row).map(weightOf)) };
  }
}
