// One answer of /v1/predict, as elements: text with alternatives, labels, tags, a place in a text, or a number.

import { make } from "/show/drawing.js";
import { barList, barRow, logProb } from "./bars.js";

const CUT = "The input was longer than the model reads, and its end was left out.";
const MOST_WORDS = 2000; // of a text, that are shown with their tags
const HUES = 8; // colours of tags, in studio.css

export function answered(found, { question = "", chosen = 0, onChoose } = {}) {
  const parts = form(found)(found, { question, chosen, onChoose });
  if (found.cut) parts.push(make("p", { className: "note" }, CUT));
  return make("div", { className: "answer", translate: false }, ...parts);
}

function form(found) {
  if ("tags" in found) return tagged;
  if ("label" in found || ("answer" in found && found.probabilities)) return labelled;
  if ("start" in found || "answer" in found) return placed;
  if ("number" in found) return numbered;
  return written;
}

function written({ text, score, tokens, times = [], alternatives = [] }, { chosen, onChoose }) {
  const all = [{ text, score, tokens }, ...alternatives],
    best = all[chosen] ?? all[0];
  const parts = [
    make(
      "p",
      { className: "answer-text", dir: "auto" },
      best.text || make("span", { className: "quiet" }, "The output is empty."),
    ),
    make("p", { className: "quiet" }, measured(best)),
    ...(times.length && best.text === text ? [timed(times)] : []),
  ];
  if (all.length > 1)
    parts.push(
      make(
        "h3",
        {},
        "Alternatives ",
        make("span", { className: "quiet" }, "with their log-probabilities; ranked after the length penalty"),
      ),
      choices(all, chosen, onChoose),
    );
  return parts;
}

function timed(times) {
  // of each word, where it is in the recording, in seconds
  const shown = times.slice(0, MOST_WORDS).map(({ word, start, end }) => {
    const at = make("small", { title: `${start.toFixed(2)} to ${end.toFixed(2)} s` }, start.toFixed(2));
    return make("span", { className: "word" }, make("bdi", {}, word), at);
  });
  return make("p", { className: "timed", dir: "auto", ariaLabel: "Seconds at which each word begins" }, ...shown);
}

const measured = ({ score, tokens }) =>
  `log-probability ${logProb(score)} · ${tokens.length} ${tokens.length === 1 ? "token" : "tokens"}`;

function choices(all, chosen, onChoose) {
  // one list in the order of the search
  return make(
    "ol",
    { className: "alternatives" },
    ...all.map((each, at) => {
      const button = make(
        "button",
        { type: "button", ariaPressed: String(at === chosen), disabled: !onChoose },
        make("span", { dir: "auto" }, each.text || "(empty)"),
        make("span", { className: "quiet" }, logProb(each.score)),
      );
      button.addEventListener("click", () => onChoose(at));
      return make("li", {}, button);
    }),
  );
}

function labelled({ label, answer, probabilities }) {
  const chosen = label ?? answer;
  return [make("p", { className: "answer-text", dir: "auto" }, chosen), barList(probabilities, chosen)];
}

function tagged({ words, tags }) {
  const kinds = [...new Set(tags)].sort(),
    left = words.length - MOST_WORDS;
  const shown = words.slice(0, MOST_WORDS).map((word, at) => {
    const name = make("span", { className: `tag-name hue-${kinds.indexOf(tags[at]) % HUES}` }, tags[at] ?? "–");
    return make("span", { className: "tag" }, make("bdi", {}, word), name);
  });
  const rest =
    left > 0 ? [make("p", { className: "quiet" }, `${left.toLocaleString("en")} more words are not shown.`)] : [];
  return [make("div", { className: "tagged" }, ...shown), ...rest];
}

function placed({ answer, probability, start, end, alternatives = [] }, { question }) {
  const text = question.split("\t").slice(1).join("\t"),
    found = probability !== undefined;
  const parts = [make("p", { className: "answer-text", dir: "auto" }, found ? answer : "There is no answer.")];
  if (found && text)
    parts.push(
      make(
        "p",
        { className: "passage", dir: "auto" },
        text.slice(0, start),
        make("mark", {}, text.slice(start, end)),
        text.slice(end),
      ),
    );
  if (found)
    parts.push(
      make(
        "ul",
        { className: "bars" },
        barRow(answer, probability, { className: "chosen" }),
        ...alternatives.map((each) => barRow(each.answer, each.probability)),
      ),
    );
  return parts;
}

const numbered = ({ number }) => [
  make("p", { className: "answer-text" }, Number(number.toPrecision(6)).toLocaleString("en")),
];

export const inWords = (found) =>
  // for the live region
  found.text ??
  found.label ??
  found.answer ??
  (found.tags && `${found.tags.length} tags`) ??
  String(found.number ?? "");
