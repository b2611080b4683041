// The theme of a page: as the system is, until its button is pressed; light on paper.

export function followTheme(button, onChange = () => {}) {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const set = (name) => {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    onChange();
  };
  const follow = () => set(system.matches ? "dark" : "light");
  system.addEventListener("change", follow);
  button.addEventListener("click", () => set(root.dataset.theme === "dark" ? "light" : "dark"));
  addEventListener("beforeprint", () => {
    const before = root.dataset.theme;
    set("light");
    addEventListener("afterprint", () => set(before), { once: true });
  });
  follow();
}
