// What tools/sitecheck.py asks of a page in the browser: functions that return words or numbers.

const UNFOLD = () => {
  document.querySelectorAll('details').forEach(d => d.open = true);
  document.querySelectorAll('.toggle-hidden').forEach(d => d.classList.remove('toggle-hidden'));
};

// What the page shows, once its equations are set. Folded parts are unfolded first.
const MATHS = async () => {
  if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
  const found = [];
  for (const e of document.querySelectorAll('.math'))
    if (!e.querySelector('mjx-container')) found.push('raw TeX: ' + e.textContent.trim());
  for (const e of document.querySelectorAll('mjx-merror, [data-mjx-error]'))
    found.push('equation with an error: ' + (e.dataset.mjxError || e.textContent));
  for (const e of document.querySelectorAll('mjx-assistive-mml [mathcolor="red"]'))
    found.push('equation with an unknown command: ' + e.textContent);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent, inside = walk.currentNode.parentElement;
    if (/\\\(|\\\[|\$\$|\\begin\{|\{(eq|ref|cite|numref|prf:ref)\}`/.test(text)
        && !inside.closest('pre, code, script, style, .math, mjx-container'))
      found.push('raw TeX or markup: ' + text.trim().slice(0, 80));
  }
  return found;
};

const OVERFLOW = () => {
  const page = document.documentElement, width = page.clientWidth;
  if (page.scrollWidth <= width + 1) return [];
  const wide = [...document.body.querySelectorAll('*')].filter(
    e => Math.abs(e.getBoundingClientRect().right - page.scrollWidth) < 2).at(-1);
  return [`wider than the screen at ${width} px: ` + (wide
    ? `<${wide.tagName.toLowerCase()} class="${wide.className}"> in "`
      + wide.parentElement.textContent.trim().slice(0, 60) + '"'
    : 'no single element is to blame')];
};

// Parts that only a scroll bar inside the page would show. On a phone code, whose lines may not be
// broken, has one.
const CLIPPED = () => {
  const phone = document.documentElement.clientWidth < 600;
  return [...document.querySelectorAll('.bd-article :is(div.math, table, figcaption, pre)')]
    .filter(e => e.scrollWidth > e.clientWidth + 2 && !(phone && e.matches('pre')))
    .map(e => `clipped at ${document.documentElement.clientWidth} px: ${e.scrollWidth} px in `
      + `${e.clientWidth}: ` + e.textContent.trim().slice(0, 60));
};

// Punctuation that begins a line because a formula ends the one before.
const PARTED = () => [...document.querySelectorAll('.bd-article span.math')].flatMap(formula => {
  const text = formula.nextSibling, range = document.createRange();
  if (text?.nodeType != Node.TEXT_NODE || !/^[,.;:!?)]/.test(text.data)) return [];
  range.setStart(text, 0);
  range.setEnd(text, 1);
  const mark = range.getBoundingClientRect(), maths = formula.getBoundingClientRect();
  return mark.width && mark.left < maths.left + 1 && mark.bottom > maths.bottom + 5
    ? ['line that begins with punctuation: ' + formula.parentElement.textContent.slice(0, 60)] : [];
});

// A slider is moved by keys, tells its value, and every picture of it has words.
const SLIDERS = () => [...document.querySelectorAll('.cv-slider')].flatMap(box => {
  const found = [], input = box.querySelector('input[type=range]');
  const name = box.querySelector('label')?.textContent.trim().slice(0, 40) || 'no label';
  const shown = () => [...box.querySelectorAll('img')].findIndex(i => i.style.display != 'none');
  if (!input || !input.labels.length || input.tabIndex < 0) return [`slider without keys: ${name}`];
  if (box.outerHTML.length > 700_000) found.push(`slider over 700 KB: ${name}`);
  const at = input.value, said = input.getAttribute('aria-valuetext');
  input.value = +at ? 0 : 1;
  input.dispatchEvent(new Event('input', {bubbles: true}));
  if (input.getAttribute('aria-valuetext') == said)
    found.push(`slider that tells no value: ${name}`);
  if (shown() != +input.value) found.push(`slider that shows no other picture: ${name}`);
  input.value = at;
  input.dispatchEvent(new Event('input', {bubbles: true}));
  return found;
});

// Words that stand out from their ground by less than 4.5:1.
const CONTRAST = () => {
  const rgb = color => color.match(/[\d.]+/g).map(Number);
  const linear = c => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
  const bright = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = e => {
    const color = e ? rgb(getComputedStyle(e).backgroundColor) : [255, 255, 255];
    return color.length == 3 || color[3] == 1 ? color : ground(e.parentElement);
  };
  const kinds = 'p, figcaption, td, th, label, h1, h2, h3, a:not(.headerlink), pre, code, span';
  const words = `.bd-article :is(${kinds})`;
  const said = e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim());
  return [...document.querySelectorAll(words)].filter(said).flatMap(e => {
    const [low, high] = [bright(rgb(getComputedStyle(e).color)), bright(ground(e))].sort(
      (a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    const text = e.textContent.trim().slice(0, 40);
    return contrast < 4.5 ? [`words too pale: ${contrast.toFixed(1)} in ${text}`] : [];
  });
};

const IMAGES = () => [...document.querySelectorAll('img')]
  .filter(i => !i.alt.trim() || /\.(png|svg|jpe?g|gif)$/.test(i.alt))
  .map(i => 'picture without alt text: ' + i.getAttribute('src').slice(0, 80));

// One h1, and no level left out on the way down.
const HEADINGS = () => {
  const all = [...document.querySelectorAll('h1, .bd-article :is(h2, h3, h4, h5, h6)')];
  const level = h => +h.tagName[1], name = h => h.textContent.trim().slice(0, 60);
  const found = all.filter((h, k) => k && level(h) > level(all[k - 1]) + 1)
    .map(h => `heading out of order: h${level(h)} ${name(h)}`);
  if (document.querySelectorAll('article').length > 1) return []; // slides: a title each
  const first = [...document.querySelectorAll('h1')].filter(h => h.checkVisibility()).length;
  return first == 1 ? found : [...found, `${first} headings h1`];
};

// A figure that is wider than its frame says so, or the reader does not know that it scrolls.
const HIDDEN = () => [...document.querySelectorAll('.bd-article figure, .bd-article .cv-slider')]
  .filter(e => e.scrollWidth > e.clientWidth + 2 && !e.querySelector('.cv-slider')
    && getComputedStyle(e, '::before').content == 'none')
  .map(e => `figure that scrolls and does not say so: ${e.id || e.textContent.trim().slice(0, 40)}`);

// The share of a page's height that is code, folds closed, and its blocks by height.
const CODE = () => {
  const page = document.querySelector('.bd-article');
  const blocks = [...page.querySelectorAll('div.highlight')]
    .filter(e => !e.closest('.cell_output, .toggle-hidden, details:not([open])'))
    .map(e => [(e.closest('.cell_input') || e).getBoundingClientRect().height,
      e.textContent.trim().split('\n')[0]])
    .filter(([height]) => height).sort((a, b) => b[0] - a[0]);
  const all = page.getBoundingClientRect().height;
  return {share: blocks.reduce((sum, b) => sum + b[0], 0) / all, height: all, blocks};
};

const LINKS = () => [...document.querySelectorAll('a[href]')].map(a => a.href);
