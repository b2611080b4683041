// The page: tabs, each a link to a view, and the theme.

import { make } from "/show/drawing.js";
import { followTheme } from "/show/page_theme.js";
import { address } from "./address.js";
import { AttentionView } from "./attention_view.js";
import { CompareView } from "./compare_view.js";
import { InsideView } from "./inside_view.js";
import { RunsView } from "./runs_view.js";
import { StepsView } from "./steps_view.js";
import { TrainingView } from "./training_view.js";
import { UseView } from "./use_view.js";

const VIEWS = {
  use: ["Use", UseView],
  steps: ["Step by step", StepsView],
  attention: ["Attention", AttentionView],
  inside: ["Inside", InsideView],
  compare: ["Compare", CompareView],
  runs: ["Runs", RunsView],
  training: ["Training", TrainingView],
};
const FIRST = "use";
const THEME = "regard-theme";
const tabs = {},
  panels = {},
  views = {};
let shown = "";

function build() {
  for (const [name, [title]] of Object.entries(VIEWS)) {
    tabs[name] = make("a", { id: `tab-${name}`, role: "tab" }, title);
    panels[name] = make("section", { id: `view-${name}`, className: `view ${name}`, role: "tabpanel", hidden: true });
    tabs[name].setAttribute("aria-controls", `view-${name}`);
    panels[name].setAttribute("aria-labelledby", `tab-${name}`);
  }
  const list = document.querySelector(".tabs");
  list.append(...Object.values(tabs));
  list.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || !event.target.matches("a")) return;
    event.preventDefault();
    address.go(event.target.id.slice(4));
  });
  list.addEventListener("keydown", (event) => {
    const names = Object.keys(VIEWS),
      at = names.indexOf(event.target.id.slice(4));
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    tabs[names.at(to % names.length)].focus();
  });
  document.querySelector("main").append(...Object.values(panels));
}

function point() {
  // where the tabs lead: to the same run and text
  for (const [name, tab] of Object.entries(tabs)) tab.href = address.link(name);
}

function show() {
  const name = address.view in VIEWS ? address.view : FIRST;
  address.view = name;
  if (shown && shown !== name) {
    views[shown].close();
    panels[shown].hidden = true;
  }
  for (const [other, tab] of Object.entries(tabs)) {
    tab.ariaSelected = String(other === name);
    tab.tabIndex = other === name ? 0 : -1;
  }
  panels[name].hidden = false;
  document.title = `${VIEWS[name][0]} – regard`;
  document.querySelector(".tabs").scrollLeft = tabs[name].offsetLeft - 48;
  views[name] ??= new VIEWS[name][1](panels[name]);
  shown = name;
  views[name].open();
  point();
}

function rememberTheme() {
  // until another is chosen
  const button = document.querySelector("button.theme"),
    root = document.documentElement;
  followTheme(button, () => dispatchEvent(new Event("themechange")));
  const kept = localStorage.getItem(THEME);
  if (kept && kept !== root.dataset.theme) button.click();
  button.addEventListener("click", () => localStorage.setItem(THEME, root.dataset.theme));
}

build();
rememberTheme();
address.addEventListener("arrive", show);
address.addEventListener("set", point);
show();
