// Light or dark: what the system prefers, until the switch says otherwise. Loaded before the body,
// so that the page is never painted in the wrong one.
"use strict";
(() => {
  const kStored = "tilewright.theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const systemTheme = () => (system.matches ? "dark" : "light");
  const theme = () => localStorage.getItem(kStored) ?? systemTheme();

  function apply() {
    document.documentElement.dataset.theme = theme();
    const button = document.getElementById("theme");
    button?.setAttribute("aria-pressed", String(theme() === "dark"));
  }

  function toggle() {
    const wanted = theme() === "dark" ? "light" : "dark";
    // Back at the system's choice, the page follows the system again.
    if (wanted === systemTheme()) {
      localStorage.removeItem(kStored);
    } else {
      localStorage.setItem(kStored, wanted);
    }
    apply();
  }

  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", toggle);
  });
})();
