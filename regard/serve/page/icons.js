// The icons of buttons, as SVG paths.

const PATHS = {
  first: "M5 4v12M16 4l-8 6 8 6z",
  back: "M14 4l-8 6 8 6z",
  play: "M6 4l10 6-10 6z",
  pause: "M6 4h3v12H6zM11 4h3v12h-3z",
  forward: "M6 4l8 6-8 6z",
  last: "M15 4v12M4 4l8 6-8 6z",
};
const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
  const picture = document.createElementNS(SVG, "svg"),
    path = document.createElementNS(SVG, "path");
  for (const [key, value] of Object.entries({
    viewBox: "0 0 20 20",
    width: 20,
    height: 20,
    "aria-hidden": "true",
    class: "icon",
  }))
    picture.setAttribute(key, value);
  path.setAttribute("d", PATHS[name]);
  picture.append(path);
  return picture;
}
