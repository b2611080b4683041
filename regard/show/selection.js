// What of a sentence is shown, and what else could be chosen.

import { sameTokens } from "./weights.js";

const oneOf = (values, wanted) => (values.includes(wanted) ? wanted : values[0]);
const alike = (one, other) => sameTokens(one.rows, other.rows) && sameTokens(one.columns, other.columns);

export function select({ views, averages = true }, wanted) { // what is wanted but does not exist becomes what comes first
  const kinds = [...new Set(views.map((view) => view.name))], kind = oneOf(kinds, wanted.kind);
  const all = views.filter((view) => view.name === kind), numbers = all.map((view) => String(view.layer));
  const isMean = averages && all.length > 1 && all.every((view) => alike(view, all[0]));
  const layers = isMean ? ["mean", ...numbers] : numbers;
  const layer = layers.includes(wanted.layer) ? wanted.layer : numbers[0];
  const some = layer === "mean" ? all : all.filter((view) => String(view.layer) === layer), { rows, columns } = some[0];
  const count = Math.min(...some.map((view) => view.heads));
  const heads = [...(count > 1 ? ["mean", "max"] : []), ...Array.from({ length: count }, (_, i) => String(i + 1))];
  const several = all.length > 1 || all[0].heads > 1;
  const looks = ["map", ...(several ? ["grid"] : []), ...(sameTokens(rows, columns) ? ["arcs"] : [])];
  const head = oneOf(heads, wanted.head), look = oneOf(looks, wanted.look);
  const name = nameOf(kind, layer, head, look, some, count);
  return { kind, layer, head, look, name, kinds, layers, heads, looks, all, some };
}

function nameOf(kind, layer, head, look, views, heads) {
  if (look === "grid") return `${kind}, all layers and heads`;
  const where = layer === "mean" ? `mean of ${views.length} layers` : `layer ${layer}`;
  const which = isNaN(head) ? `, ${head} of ${heads} heads` : heads > 1 ? `, head ${head}` : "";
  return `${kind}, ${where}${which}`;
}
