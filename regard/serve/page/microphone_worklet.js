// Runs in the thread of the sound: passes on what the microphone gives.

registerProcessor(
  "microphone",
  class extends AudioWorkletProcessor {
    process([[samples]]) {
      if (samples) this.port.postMessage(samples.slice());
      return true;
    }
  },
);
