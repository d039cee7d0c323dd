// Runs before the page is drawn, so that it is drawn in its colours at once. "" is: as the system has them.
"use strict";
(() => {
  let chosen = "";
  try { chosen = localStorage.getItem("rowwise.theme") || ""; } catch { /* storage is turned off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
