// Light or dark as it was chosen last, before anything is drawn. Runs before the modules, so it is none itself.
"use strict";

(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem("amqpd-theme");
  } catch {
    // A browser that keeps nothing: as the system has it.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
