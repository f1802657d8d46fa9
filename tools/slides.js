addEventListener("keydown", e => {
  const step = {ArrowRight: 1, ArrowDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1}[e.key];
  const all = [...document.querySelectorAll("article")];
  const here = all.findIndex(s => s.getBoundingClientRect().bottom > innerHeight / 2);
  if (step) { e.preventDefault(); all[here + step]?.scrollIntoView(); }
});
