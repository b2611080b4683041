// All that is on the screen, as the URL's fragment, #view?name=value&…: a reload or a shared link restores it.

const PAUSE = 300; // ms between two writes: a browser refuses many in a short time
const LONGEST = 20000; // characters of a value; a longer one is left out of the link

class Address extends EventTarget {
  constructor() {
    super();
    this.timer = 0;
    this.pending = false; // whether something has not been written yet
    this.read();
    addEventListener("popstate", () => this.arrive()); // also for a link that was followed
    addEventListener("pagehide", () => this.write());
  }

  read() {
    const [view, query] = location.hash.slice(1).split(/\?(.*)/s);
    this.view = view;
    this.values = new Map();
    for (const [name, value] of new URLSearchParams(query ?? "")) this.values.set(name, [...this.all(name), value]);
  }

  arrive() {
    this.pending = false;
    this.read();
    this.dispatchEvent(new Event("arrive"));
  }

  all(name) {
    return this.values.get(name) ?? [];
  }

  get(name) {
    return this.all(name)[0] ?? "";
  }

  number(name, usual) {
    const found = this.get(name);
    return found === "" || isNaN(found) ? usual : Number(found);
  }

  set(part) {
    // "" and [] take a name away
    for (const [name, value] of Object.entries(part)) {
      const several = [value]
        .flat()
        .map(String)
        .filter((one) => one !== "");
      if (several.length) this.values.set(name, several);
      else this.values.delete(name);
    }
    this.dispatchEvent(new Event("set"));
    this.pending = true;
    if (!this.timer) this.write();
  }

  write() {
    // at once, but not again for a while
    clearTimeout(this.timer);
    this.timer = 0;
    if (!this.pending) return;
    this.pending = false;
    history.replaceState(null, "", this.link());
    this.timer = setTimeout(() => this.write(), PAUSE);
  }

  link(view = this.view, part = {}) {
    const query = new URLSearchParams(),
      changed = new Map(Object.entries(part).map(([name, value]) => [name, [value].flat()]));
    for (const [name, values] of new Map([...this.values, ...changed]))
      for (const value of values)
        if (String(value).length > LONGEST) query.append("missing", name);
        else if (value !== "") query.append(name, value);
    return `#${view}${query.size ? "?" + query : ""}`;
  }

  go(view, part = {}) {
    // a step that the back button returns from
    this.write();
    history.pushState(null, "", this.link(view, part));
    this.arrive();
  }
}

export const address = new Address();
