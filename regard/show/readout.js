// The words of both sides, and a sentence about the chosen row or column; the words that it looks at light up.

import { decimal, make, short } from "./drawing.js";

const token = (text) => make("bdi", {}, text);

export class Readout {
  constructor(words, onPick) {
    this.words = words;
    this.pair = make("p", { className: "pair", role: "status" });
    this.most = make("p", { className: "most" });
    this.lines = Object.fromEntries(["rows", "columns"].map((side) => [side, this.line(side, onPick)]));
    this.element = make("div", { className: "readout", translate: false }, this.pair, this.most);
    this.sides = make("div", { className: "lines", translate: false },
      make("p", { className: "name" }, words.looking), this.lines.rows,
      make("p", { className: "name" }, words["looked-at"]), this.lines.columns);
  }

  line(side, onPick) {
    const line = make("p", { className: `words ${side}`, dir: "auto" });
    line.addEventListener("pointerover", ({ target }) => {
      const index = [...line.children].indexOf(target);
      if (index >= 0) onPick(side === "rows" ? index : -1, side === "rows" ? -1 : index);
    });
    return line;
  }

  show(matrix) {
    this.matrix = matrix;
    for (const [side, line] of Object.entries(this.lines))
      line.replaceChildren(...matrix[side].map((word) => make("span", {}, word)));
  }

  hint(text) {
    this.clear();
    this.pair.classList.add("hint");
    this.pair.textContent = text;
    this.most.replaceChildren();
  }

  head({ label, largest }, hint) { // of a small map
    this.pair.classList.remove("hint");
    this.pair.textContent = label[0].toUpperCase() + label.slice(1);
    this.most.textContent = `The largest weight is ${decimal(largest)}. ${hint}`;
  }

  say(row, column, paint) { // one of them is -1 if no square is chosen
    const { matrix } = this, forward = row >= 0, others = forward ? matrix.columns : matrix.rows;
    const weights = others.map((_, i) => (forward ? matrix.at(row, i) : matrix.at(i, column)));
    const order = [...weights.keys()].filter((i) => weights[i] > 1).sort((a, b) => weights[b] - weights[a]);
    const pair = [forward ? row : order[0] ?? 0, column >= 0 ? column : order[0] ?? 0];
    this.clear();
    this.pair.classList.remove("hint");
    this.pair.replaceChildren(token(matrix.rows[pair[0]]), " → ", token(matrix.columns[pair[1]]), " ",
      decimal(matrix.at(...pair)));
    this.most.replaceChildren(token(forward ? matrix.rows[row] : matrix.columns[column]),
      ` ${this.words[forward ? "forward" : "back"]} `, order.length ? "" : "nothing over 0.01",
      ...order.slice(0, 5).flatMap((i, n) => [n ? " · " : "", token(others[i]), " ", decimal(weights[i])]));
    for (const i of order) {
      const word = this.lines[forward ? "columns" : "rows"].children[i];
      Object.assign(word.style, { background: paint.fill(weights[i]), color: paint.inkOn(weights[i]) });
      if (weights[i] >= 13) word.dataset.weight = short(weights[i]);
    }
    this.mark(this.lines.rows, row, pair[0]);
    this.mark(this.lines.columns, column, pair[1]);
  }

  mark(line, chosen, shown) { // and scrolls to the word that is shown, unless the pointer is in the line
    const word = line.children[shown], low = word.offsetTop + 2 * word.offsetHeight - line.clientHeight;
    if (chosen >= 0) word.className = "chosen";
    if (!line.matches(":hover")) line.scrollTop = Math.min(word.offsetTop, Math.max(line.scrollTop, low));
  }

  clear() {
    for (const word of this.sides.querySelectorAll(".words [style], .words [class]"))
      for (const name of ["style", "class", "data-weight"]) word.removeAttribute(name);
  }
}
