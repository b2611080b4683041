// What a view says when it has nothing to show: that it waits, that it is empty, or what went wrong.

import { make } from "/show/drawing.js";

const SLOW = 250; // ms after which waiting is shown

export class Status {
  constructor() {
    this.element = make("div", { className: "message", hidden: true });
  }

  clear() {
    clearTimeout(this.timer);
    clearInterval(this.ticking);
    this.element.hidden = true;
    this.element.replaceChildren();
  }

  busy(text) {
    this.clear();
    this.timer = setTimeout(() => this.put(make("p", { className: "busy", role: "status" }, text)), SLOW);
  }

  empty(title, ...more) {
    this.clear();
    this.put(make("div", { className: "empty" }, make("h2", {}, title), ...more.map((each) => make("p", {}, each))));
  }

  noRun() {
    this.empty("There is no run yet", "Train one, for example with “regard demo”; it appears here by itself.");
  }

  noInput(run, text, pair = text) {
    const recording = "Choose, drop or paste a recording, or make one with the microphone.";
    this.empty({ text, pair, picture: "Choose, drop or paste a picture.", recording }[run.reads]);
  }

  problem({ message, retryAfter }, again) {
    // `again` is called when the server says that it may be
    this.clear();
    const button = make("button", { type: "button" }, "Try again");
    const wait = make("span", { className: "quiet", ariaHidden: "true" });
    button.addEventListener("click", () => (this.clear(), again()));
    this.put(
      make(
        "div",
        { className: "problem" },
        make("p", { role: "alert" }, message),
        make("div", { className: "row" }, ...(again ? [button] : []), wait),
      ),
    );
    if (!retryAfter || !again) return;
    const until = Date.now() + 1000 * retryAfter;
    this.ticking = setInterval(() => {
      const left = Math.ceil((until - Date.now()) / 1000);
      wait.textContent = left > 0 ? `Trying again in ${left} s` : "";
      if (left <= 0) button.click();
    }, 250);
  }

  put(element) {
    this.element.replaceChildren(element);
    this.element.hidden = false;
  }
}
