// A picture that is dropped, pasted or chosen. It stays in this tab: a link cannot carry it.

import { make } from "/show/drawing.js";

export const EXAMPLE = /^Example (\d)$/;
const MOST = 6e6; // bytes: base64 and the rest of the request fit into the server's 8 MB

export class PictureBox {
  constructor(onChange) {
    this.onChange = onChange;
    this.file = make("input", { type: "file", accept: "image/*", id: "picture-file" });
    this.image = make("img", { alt: "The picture that was given", hidden: true });
    this.note = make("p", { className: "quiet", role: "status" });
    this.element = make(
      "div",
      { className: "picture-box" },
      this.image,
      make(
        "div",
        {},
        make("label", { htmlFor: "picture-file" }, "Picture"),
        this.file,
        make("p", { className: "quiet" }, "Or drop one here, or paste one."),
        this.note,
      ),
    );
    this.file.addEventListener("change", () => this.take(this.file.files[0]));
    const over = (is) => this.element.classList.toggle("over", is);
    const on = (name, act) => document.addEventListener(name, (event) => this.element.checkVisibility() && act(event)); // anywhere on the page
    on("dragover", (event) => (event.preventDefault(), over(true)));
    on("dragleave", () => over(false));
    on("drop", (event) => (event.preventDefault(), over(false), this.take(event.dataTransfer.files[0])));
    document.addEventListener("paste", ({ clipboardData }) => {
      const pasted = [...clipboardData.files].find((file) => file.type.startsWith("image/"));
      if (pasted && this.element.checkVisibility()) this.take(pasted);
    });
  }

  async take(file) {
    if (!file) return;
    if (file.size > MOST)
      return this.refuse(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB: give a picture of at most 6 MB.`);
    const reader = new FileReader();
    await new Promise((done) => (Object.assign(reader, { onloadend: done }), reader.readAsDataURL(file)));
    if (!reader.result) return this.refuse(`${file.name} cannot be read.`);
    this.show(reader.result, file.name);
  }

  show(address, name, isExample = false) {
    // an example can be found again by its name
    this.value = address;
    this.name = name;
    this.image.src = address;
    this.image.hidden = false;
    this.note.textContent = isExample ? `${name}.` : `${name}. It is not part of the link.`;
    this.onChange();
  }

  refuse(sentence) {
    this.note.textContent = sentence;
  }

  missing(name) {
    // what a link remembers of it
    if (!this.value && name && !EXAMPLE.test(name))
      this.note.textContent = `The link does not hold the picture ${name}: choose it again.`;
  }
}
