// The runs of the server, and the facts of those that have been asked for.

import { get } from "./api.js";

const facts = new Map(); // name -> the promise of its facts; they change only when the run is trained again

export const listRuns = async (signal) => (await get("/v1/runs", { signal })).runs;

export function factsOf(name) {
  // loads the run, the first time
  if (!facts.has(name)) {
    const asked = get(`/v1/runs/${encodeURIComponent(name)}`);
    facts.set(name, asked);
    asked.catch(() => facts.delete(name));
  }
  return facts.get(name);
}

export const can = (run, ability) => run.can.includes(ability);

export const isSilent = (run, { text }) => run.reads === "recording" && text === ""; // no word has a moment

export function brief({ title, parameters, precision }) {
  const count = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(parameters);
  return `${title} · ${count} parameters · ${precision}`;
}
