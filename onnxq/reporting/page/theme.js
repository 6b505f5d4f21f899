// Light or dark: as the system is, or as the reader chose. Runs first, so that nothing flashes.
"use strict";
(() => {
  const KEY = "onnxq-report-theme";
  const CHOICES = ["auto", "light", "dark"];
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  function stored() {
    // A page from a file may have no storage.
    try { return localStorage.getItem(KEY); } catch { return null; }
  }

  let chosen = CHOICES.includes(stored()) ? stored() : "auto";

  function apply() {
    root.dataset.theme = chosen === "auto" ? (system.matches ? "dark" : "light") : chosen;
    document.dispatchEvent(new CustomEvent("theme"));
  }

  function next() {
    chosen = CHOICES[(CHOICES.indexOf(chosen) + 1) % CHOICES.length];
    try { localStorage.setItem(KEY, chosen); } catch { /* the choice lasts as long as the page */ }
    apply();
    label();
  }

  function label() {
    const button = document.getElementById("theme");
    button.textContent = chosen[0].toUpperCase() + chosen.slice(1);
    button.setAttribute("aria-label", `Theme: ${chosen === "auto" ? "as the system" : chosen}`);
  }

  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", next);
    label();
  });
  apply();
})();
