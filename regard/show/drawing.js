// Small helpers of all drawing modules: elements, numbers, colours, files.

export const FONT = "system-ui, sans-serif";
export const decimal = (byte) => (byte / 255).toFixed(2);
export const weightOf = (byte) => Math.round((1e4 * byte) / 255) / 1e4;
export const short = (byte) => decimal(byte).replace(/^0/, "");
export const brief = (token) => ([...token].length > 16 ? [...token].slice(0, 15).join("") + "…" : token);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// ── weights ──
export async function unpack(weights) { // base64 of bytes that zlib has compressed, or the bytes themselves
  if (weights instanceof Uint8Array) return weights;
  if (!globalThis.DecompressionStream) throw new Error("This browser is too old to unpack the weights.");
  const packed = Uint8Array.from(atob(weights), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// ── colours ──
function luminance([red, green, blue]) {
  const [r, g, b] = [red, green, blue].map((value) => (value / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export function themeColours(root, scales) { // the CSS custom properties that hold at the root, and the scale that fits
  const probe = root.appendChild(make("i")), found = {};
  for (const name of ["panel", "ink", "quiet", "accent"]) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  const dark = luminance(found.panel.match(/[\d.]+/g).map(Number)) < 0.18;
  return { ...found, scale: dark ? scales.dark : scales.light };
}

export class Paint { // the colours of a theme, and the byte that has the last colour of its scale
  constructor(colours, full) {
    Object.assign(this, colours, { full });
  }

  share(byte) {
    return Math.min(1, byte / this.full);
  }

  shade(byte) {
    return this.scale[Math.round(255 * this.share(byte))];
  }

  fill(byte) {
    return `rgb(${this.shade(byte)})`;
  }

  inkOn(byte) { // whichever is easier to read
    return luminance(this.shade(byte)) > 0.18 ? "#000" : "#fff";
  }

  get legend() {
    return `linear-gradient(90deg, ${this.scale.map((colour) => `rgb(${colour})`)})`;
  }

  picture(bytes, width, height) { // a canvas with one pixel per weight
    const canvas = make("canvas", { width: width || 1, height: height || 1 }), context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer);
    const shades = this.scale.flatMap((_, byte) => [...this.shade(byte), 255]);
    const colour = new Uint32Array(new Uint8Array(shades).buffer);
    bytes.forEach((byte, i) => (pixels[i] = colour[byte]));
    context.putImageData(image, 0, 0);
    return canvas;
  }
}

// ── files ──
export function saveBlob(blob, name, ending) {
  const href = URL.createObjectURL(blob), download = name.replace(/[^\p{L}\p{N}]+/gu, "-") + ending;
  make("a", { href, download }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

export async function pngOf(svg) { // the same picture, at twice the size unless it is huge
  const href = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" })), image = make("img", { src: href });
  await image.decode();
  const ratio = Math.min(2, 4096 / Math.max(image.width, image.height));
  const canvas = make("canvas", { width: image.width * ratio, height: image.height * ratio });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(href);
  return new Promise((resolve) => canvas.toBlob(resolve));
}
