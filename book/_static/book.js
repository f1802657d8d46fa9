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
