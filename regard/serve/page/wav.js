// WAV files: 16 kHz, one channel, 16 bits.

const RATE = 16000;
const HEADER = 44; // bytes

export async function wavOf(content) {
  // of a sound file that the browser can decode
  return encoded(await resampled(await new OfflineAudioContext(1, 1, RATE).decodeAudioData(content)));
}

export async function resampled(buffer) {
  // the samples of an AudioBuffer, its channels mixed
  const context = new OfflineAudioContext(1, Math.max(1, Math.round(buffer.duration * RATE)), RATE);
  const source = new AudioBufferSourceNode(context, { buffer });
  source.connect(context.destination);
  source.start();
  return (await context.startRendering()).getChannelData(0);
}

export function encoded(samples) {
  const view = new DataView(new ArrayBuffer(HEADER + 2 * samples.length));
  const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  const number = (at, value, bytes) => (bytes === 4 ? view.setUint32(at, value, true) : view.setUint16(at, value, true));
  text(0, "RIFF");
  number(4, view.byteLength - 8, 4);
  text(8, "WAVEfmt ");
  for (const [at, value, bytes] of [
    [16, 16, 4], // bytes of this part
    [20, 1, 2], // whole numbers
    [22, 1, 2], // channels
    [24, RATE, 4],
    [28, 2 * RATE, 4], // bytes per second
    [32, 2, 2], // bytes per sample
    [34, 16, 2], // bits per sample
  ])
    number(at, value, bytes);
  text(36, "data");
  number(40, 2 * samples.length, 4);
  samples.forEach((sample, i) => view.setInt16(HEADER + 2 * i, Math.round(32767 * Math.min(1, Math.max(-1, sample))), true));
  return new Blob([view], { type: "audio/wav" });
}
