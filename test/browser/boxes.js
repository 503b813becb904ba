// What is wrong with the layout of the page: a list of sentences.
(() => {
  const problems = [];
  const name = (el) => `${el.tagName.toLowerCase()}.${el.getAttribute('class') ?? ''} "${(el.textContent ?? '').trim().slice(0, 40)}"`;
  const root = document.scrollingElement;
  if (root.scrollWidth > innerWidth) problems.push(`the page is ${root.scrollWidth} px wide, the window ${innerWidth}`);
  const shown = (el) => el.checkVisibility() && !el.closest('.unseen, .skip, dialog, #tip');
  // Nothing reaches out of the box that it is drawn in, unless the box scrolls.
  for (const box of document.querySelectorAll('.top, .panel, .stat, .server, .scroll, .chassis, .card-link, .heading')) {
    if (!shown(box)) continue;
    const outer = box.getBoundingClientRect();
    for (const el of box.querySelectorAll('*')) {
      if (!shown(el) || el.closest('.scroll, #nav') || el.closest('svg') || el.closest('.card-link') !== box.closest('.card-link')) continue;
      const r = el.getBoundingClientRect();
      if (r.width && (r.left < outer.left - 1 || r.right > outer.right + 1 || r.bottom > outer.bottom + 1)) problems.push(`${name(el)} leaves ${name(box)}`);
    }
  }
  // No two texts lie over each other.
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const el = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !el || !shown(el) || el.closest('script, option, .scroll, #nav')) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    for (const r of range.getClientRects()) {
      const clip = el.getBoundingClientRect(); // what an ellipsis stands for is not seen
      const box = getComputedStyle(el).overflowX === 'visible' ? r : { left: Math.max(r.left, clip.left), right: Math.min(r.right, clip.right), top: r.top, bottom: r.bottom };
      if (box.right - box.left > 1) texts.push({ el, left: box.left, right: box.right, top: r.top, bottom: r.bottom });
    }
  }
  texts.sort((a, b) => a.top - b.top);
  texts.forEach((a, i) => {
    for (let k = i + 1; k < texts.length && texts[k].top < a.bottom - 3; k++) {
      const b = texts[k];
      if (a.el !== b.el && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4) problems.push(`${name(a.el)} lies over ${name(b.el)}`);
    }
  });
  return problems.slice(0, 10);
})()
