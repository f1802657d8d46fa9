// Tables and formulas that are too wide are set smaller; then, what is too wide all the same.

const SHRINK = () => {
  const [tables, formulas] = ['table', 'mjx-container[display]'].map(
    kind => [...document.querySelectorAll(kind)].map(e => {
      const room = (e.closest('div.math') || e.parentElement).clientWidth;
      return [e, room / e.scrollWidth];
    }).filter(([, share]) => share < 1));  // look at all before any is changed: it is faster
  for (const [table, share] of tables) table.style.zoom = share - 0.005;
  for (const [formula, share] of formulas)
    formula.style.fontSize = `${Math.floor(95 * share)}%`;
};

const TOO_WIDE = () => [...document.querySelectorAll('article *')]
  .filter(e => !e.closest('svg, mjx-assistive-mml')
    && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => `<${e.tagName.toLowerCase()}> ` + e.textContent.trim().slice(0, 60));
