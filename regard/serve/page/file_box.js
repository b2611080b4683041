// A file that is dropped, pasted or chosen. It stays in this tab: a link cannot carry it.

import { make } from "/show/drawing.js";

export const EXAMPLE = /^Example (\d)$/;
const MOST = 6e6; // bytes: base64 and the rest of the request fit into the server's 8 MB

export class FileBox {
  constructor({ name, media, preview, also = [] }, onChange) {
    // `media`: what its MIME type begins with; `preview`: the element that shows it; `also`: other ways to give it
    Object.assign(this, { kind: name, media, preview, onChange });
    preview.hidden = true;
    this.file = make("input", { type: "file", accept: `${media}/*`, id: `${name}-file` });
    this.note = make("p", { className: "quiet", role: "status" });
    this.element = make(
      "div",
      { className: `file-box ${name}-box` },
      preview,
      make(
        "div",
        {},
        make("label", { htmlFor: this.file.id }, name[0].toUpperCase() + name.slice(1)),
        this.file,
        ...also,
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
      const pasted = [...clipboardData.files].find((file) => file.type.startsWith(`${media}/`));
      if (pasted && this.element.checkVisibility()) this.take(pasted);
    });
  }

  async take(file, name = file?.name) {
    if (!file) return;
    const fitting = await this.fitting(file);
    if (fitting.size > MOST)
      return this.refuseFile(`${name} has ${(fitting.size / 1e6).toFixed(1)} MB: give a ${this.kind} of at most 6 MB.`);
    const reader = new FileReader();
    await new Promise((done) => (Object.assign(reader, { onloadend: done }), reader.readAsDataURL(fitting)));
    if (!reader.result) return this.refuseFile(`${name} cannot be read.`);
    this.show(reader.result, name);
  }

  async fitting(file) {
    // what is sent of it
    return file;
  }

  tooLarge(file) {
    return file.size > MOST;
  }

  show(address, name, isExample = false) {
    // an example can be found again by its name
    this.value = address;
    this.name = name;
    if (this.file.files[0]?.name !== name) this.file.value = ""; // it shows the name of another one
    this.preview.src = address;
    this.preview.hidden = false;
    this.note.textContent = isExample ? `${name}.` : `${name}. It is not part of the link.`;
    this.onChange(this);
  }

  refuseFile(sentence) {
    // what was there before is not what the person wants an answer to
    this.value = this.name = "";
    this.preview.hidden = true;
    this.preview.removeAttribute("src");
    this.onChange(this);
    this.refuse(sentence);
  }

  refuse(sentence) {
    this.note.textContent = sentence;
  }

  missing(name) {
    // what a link remembers of it
    if (!this.value && name && !EXAMPLE.test(name))
      this.note.textContent = `The link does not hold the ${this.kind} ${name}: choose it again.`;
  }
}

export class PictureBox extends FileBox {
  constructor(onChange) {
    const preview = make("img", { alt: "The picture that was given" });
    super({ name: "picture", media: "image", preview }, onChange);
  }
}
