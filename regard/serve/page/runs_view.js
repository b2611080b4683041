// Runs: what the server has, asked for again and again; each opens in another view.

import { make } from "/show/drawing.js";
import { address } from "./address.js";
import { Latest } from "./latest.js";
import { listRuns } from "./runs.js";
import { Status } from "./status.js";

const EVERY = 3000; // ms
const COLUMNS = ["Run", "State", "Best validation", "Size", "Open in"];
const LINKS = { use: "Use", steps: "Steps", attention: "Attention", inside: "Inside", training: "Training" };
const NONE = Object.fromEntries(
  [
    "forced",
    "step",
    "alternative",
    "target",
    "kind",
    "layer",
    "head",
    "look",
    "row",
    "column",
    "view",
    "word",
    "go",
  ].map((name) => [name, ""]),
);

export class RunsView {
  constructor(panel) {
    this.panel = panel;
    this.listing = new Latest();
    this.status = new Status();
    this.rows = make("tbody", { translate: false });
    const table = make(
      "table",
      {},
      make("thead", {}, make("tr", {}, ...COLUMNS.map((name) => make("th", { scope: "col" }, name)))),
      this.rows,
    );
    this.table = make("div", { className: "scroll card", tabIndex: 0, role: "region", ariaLabel: "Runs" }, table);
    this.count = make("p", { className: "quiet", role: "status" });
    document.addEventListener("visibilitychange", () => this.opened && !document.hidden && this.load());
  }

  open() {
    this.opened = true;
    this.panel.replaceChildren(
      make("div", { className: "bar" }, make("h1", {}, "Runs"), this.count),
      this.status.element,
      this.table,
    );
    this.load();
  }

  close() {
    this.opened = false;
    clearTimeout(this.timer);
    this.listing.stop();
  }

  async load() {
    clearTimeout(this.timer);
    try {
      const runs = await this.listing.run((signal) => listRuns(signal));
      if (!runs) return;
      this.show(runs);
    } catch (problem) {
      this.table.hidden = true;
      this.count.textContent = "";
      return this.status.problem(problem, () => this.load());
    }
    if (this.opened && !document.hidden) this.timer = setTimeout(() => this.load(), EVERY);
  }

  show(runs) {
    this.status.clear();
    this.table.hidden = !runs.length;
    const text = `${runs.length} ${runs.length === 1 ? "run" : "runs"}. The list follows the folder.`;
    if (this.count.textContent !== text) this.count.textContent = text;
    if (!runs.length) this.status.noRun();
    const facts = JSON.stringify([runs, address.get("text")]);
    if (facts === this.facts) return; // so that the focus stays
    this.facts = facts;
    const focused = this.rows.contains(document.activeElement) && document.activeElement.hash;
    this.rows.replaceChildren(...runs.map((run) => this.row(run)));
    if (focused) [...this.rows.querySelectorAll("a")].find((link) => link.hash === focused)?.focus();
  }

  row({ name, task, model, state, step, score, megabytes, loaded }) {
    const size =
      megabytes < 0.095 ? `${Math.ceil(1000 * megabytes)} kB` : `${megabytes.toFixed(megabytes < 10 ? 1 : 0)} MB`;
    const about = (...text) => make("small", { className: "quiet" }, ...text);
    const links = Object.entries(LINKS).map(([view, title]) =>
      make("a", { href: address.link(view, { ...NONE, run: name }), ariaLabel: `${title}: ${name}` }, title),
    );
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, name, about(`${task} · ${model}${loaded ? " · in memory" : ""}`)),
      make(
        "td",
        {},
        make("span", { className: `state ${state.split(" ")[0]}` }, state),
        about(step ? `step ${step.toLocaleString("en")}` : ""),
      ),
      make("td", {}, score || "–"),
      make("td", {}, size),
      make("td", {}, make("div", { className: "links" }, ...links)),
    );
  }
}
