/* On paper nothing is folded; what was, is again afterwards. (Solutions are unfolded by the theme.) */
let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((part) => { part.open = true; });
});
window.addEventListener("afterprint", () => {
  folded.forEach((part) => { part.open = false; });
  folded = [];
});

/* Lines to paste name the place that this page was read from. */
document.addEventListener("DOMContentLoaded", () => {
  const root = document.documentElement.dataset.content_root || "./";
  const site = new URL(root, location.href).href.replace(/\/$/, "");
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode;
    if (text.data.includes("THIS-SITE") && text.parentElement.closest("pre"))
      text.data = text.data.replaceAll("THIS-SITE", site);
  }
});

/* A line does not begin with the comma that follows a formula. */
document.addEventListener("DOMContentLoaded", () => {
  for (const formula of document.querySelectorAll("span.math")) {
    const text = formula.nextSibling;
    const marks = text?.nodeType === Node.TEXT_NODE && text.data.match(/^[^\s\p{L}\p{N}]+/u);
    if (!marks) continue;
    const together = document.createElement("span");
    together.style.whiteSpace = "nowrap";
    formula.replaceWith(together);
    together.append(formula, marks[0]);
    text.data = text.data.slice(marks[0].length);
  }
});
