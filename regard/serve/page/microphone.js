// The microphone as a WAV file. MediaRecorder is not used: what it writes depends on the browser, and few read it.

import { encoded, resampled } from "./wav.js";

const LONGEST = 120; // seconds
const PROBLEMS = {
  NotFoundError: "There is no microphone here: choose a file.",
  NotAllowedError: "This page may not use the microphone: allow it in the browser, or choose a file.",
};
const INSECURE = "A browser gives the microphone only to pages from localhost or with https: choose a file.";

export class Microphone {
  constructor(onSecond, onEnd) {
    Object.assign(this, { onSecond, onEnd, isOn: false });
  }

  async start() {
    // the sentence that says why not, if so
    if (!navigator.mediaDevices) return INSECURE;
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      this.context = new AudioContext();
      await this.context.audioWorklet.addModule("/page/microphone_worklet.js");
    } catch (problem) {
      this.release();
      return PROBLEMS[problem.name] ?? `The microphone cannot be used: ${problem.message}`;
    }
    this.parts = [];
    this.count = 0;
    this.node = new AudioWorkletNode(this.context, "microphone", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
    this.node.port.onmessage = ({ data }) => this.keep(data);
    this.context.createMediaStreamSource(this.stream).connect(this.node);
    this.isOn = true;
  }

  keep(samples) {
    if (!this.isOn) return;
    const before = Math.floor(this.count / this.context.sampleRate);
    this.parts.push(samples);
    this.count += samples.length;
    const seconds = Math.floor(this.count / this.context.sampleRate);
    if (seconds > before) this.onSecond(seconds);
    if (seconds >= LONGEST) this.onEnd();
  }

  async stop() {
    // a WAV file, or nothing
    this.isOn = false;
    const rate = this.context.sampleRate,
      samples = new Float32Array(this.count);
    let at = 0;
    for (const part of this.parts) {
      samples.set(part, at);
      at += part.length;
    }
    this.release();
    if (!samples.length) return undefined;
    const buffer = new AudioBuffer({ length: samples.length, sampleRate: rate });
    buffer.copyToChannel(samples, 0);
    return encoded(await resampled(buffer));
  }

  release() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.context?.close();
    this.stream = this.context = undefined;
  }
}
