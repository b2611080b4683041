// A recording that is chosen, dropped, pasted or made with the microphone.

import { make } from "/show/drawing.js";
import { FileBox } from "./file_box.js";
import { Microphone } from "./microphone.js";
import { wavOf } from "./wav.js";

const READ = /\.(wav|flac|ogg|oga|opus|mp3|aiff?|au)$/i; // by the server; other files become WAV here

export class RecordingBox extends FileBox {
  constructor(onChange) {
    const preview = make("audio", { controls: true, ariaLabel: "The recording that was given" });
    const button = make("button", { type: "button", className: "record" });
    super({ name: "recording", media: "audio", preview, also: [button] }, onChange);
    this.button = button;
    this.made = 0; // with the microphone
    this.microphone = new Microphone((seconds) => this.wait(seconds), () => this.stop());
    button.addEventListener("click", () => (this.microphone.isOn ? this.stop() : this.record()));
    this.label();
  }

  label() {
    this.button.textContent = this.microphone.isOn ? "Stop" : "Record";
    this.button.classList.toggle("on", this.microphone.isOn);
  }

  wait(seconds) {
    this.note.textContent = `Recording: ${seconds} s`;
  }

  async record() {
    this.preview.pause();
    const problem = await this.microphone.start();
    this.label();
    if (problem) this.refuse(problem);
    else this.wait(0);
  }

  async stop() {
    const made = await this.microphone.stop();
    this.label();
    if (made) await this.take(made, `Recording ${++this.made}`);
    else this.refuse("Nothing was recorded: speak after pressing Record, then press Stop.");
  }

  async fitting(file) {
    if (!file.name || (READ.test(file.name) && !this.tooLarge(file))) return file;
    this.note.textContent = `${file.name} is converted to WAV …`;
    return wavOf(await file.arrayBuffer()).catch(() => file); // the server then says what is wrong with it
  }
}
