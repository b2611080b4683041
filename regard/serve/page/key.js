// The API key: asked for once, when the server wants one, and kept until the browser's tab is closed.

import { make } from "/show/drawing.js";

const NAME = "regard-key";
let asking; // the promise of the dialog that is open

export const keptKey = () => sessionStorage.getItem(NAME) ?? "";
export const forgetKey = () => sessionStorage.removeItem(NAME);

export function askForKey(sentence) {
  // whether one was given
  asking ??= ask(sentence).finally(() => (asking = undefined));
  return asking;
}

function ask(sentence) {
  const input = make("input", { type: "password", required: true, autocomplete: "off", id: "api-key" });
  const dialog = make(
    "dialog",
    { className: "key" },
    make(
      "form",
      { method: "dialog" },
      make("h2", { id: "key-title" }, "This server asks for a key"),
      make("p", { className: "quiet" }, sentence),
      make("label", { htmlFor: "api-key" }, "API key"),
      input,
      make("p", { className: "quiet" }, "It is kept until this tab is closed, and sent to this server only."),
      make(
        "div",
        { className: "row" },
        make("button", { className: "primary", value: "ok" }, "Use this key"),
        make("button", { value: "", formNoValidate: true }, "Cancel"),
      ),
    ),
  );
  dialog.setAttribute("aria-labelledby", "key-title");
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === "ok") sessionStorage.setItem(NAME, input.value);
      dialog.remove();
      resolve(dialog.returnValue === "ok");
    }),
  );
}
