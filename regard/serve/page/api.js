// Requests to the server, and the one sentence that says what went wrong.

import { askForKey, keptKey, forgetKey } from "./key.js";

const GONE =
  "The server does not answer. It may have ended: start it again with “regard serve”; this page tries again by itself.";

export class Problem extends Error {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    Object.assign(this, { status, retryAfter });
  }
}

export const get = async (path, options = {}) => (await answer(path, options)).json();

export const post = async (path, body, options = {}) =>
  (await answer(path, { method: "POST", body: JSON.stringify(body), ...options })).json();

async function answer(path, options) {
  for (;;) {
    const key = keptKey(),
      headers = { "content-type": "application/json" };
    if (key) headers.authorization = `Bearer ${key}`;
    const response = await fetch(path, { headers, ...options }).catch((error) => {
      throw error.name === "AbortError" ? error : new Problem(GONE, 0, 3);
    });
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (response.status !== 401) throw problem;
    if (key === keptKey()) forgetKey();
    if (!(await askForKey(problem.message))) throw problem;
  }
}

async function problemOf(response) {
  const body = await response.json().catch(() => ({}));
  const sentence = body.error?.message ?? body.error ?? `The server answered with status ${response.status}.`;
  return new Problem(String(sentence), response.status, Number(response.headers.get("retry-after")) || 0);
}

export async function* events(path, { body, signal } = {}) {
  // the data of server-sent events
  const asked = body ? { method: "POST", body: JSON.stringify(body), signal } : { signal };
  const reader = (await answer(path, asked)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Problem(GONE, 0, 3);
    });
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = part
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart());
      if (data.length) yield data.join("\n");
    }
  }
}
