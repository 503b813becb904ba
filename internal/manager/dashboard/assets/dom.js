// The few lines that stand in for a framework. Text is always text: nothing here
// turns a string into markup, so names from a cluster can't become any.

const svgNames = new Set(['svg', 'path', 'g', 'circle', 'line', 'rect', 'title']);

// h makes an element. Attributes that are null or false are left out, functions
// listen, and "set" holds styles, which the page's security policy lets scripts
// set one by one only.
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split('.');
  const el = svgNames.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  if (classes.length) el.setAttribute('class', classes.join(' '));
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'set') for (const [k, v] of Object.entries(value)) el.style.setProperty(k, v);
    else if (key === 'class') el.setAttribute('class', [...classes, value].join(' '));
    else if (typeof value === 'function') el.addEventListener(key, value);
    else el.setAttribute(key, value === true ? '' : value);
  }
  put(el, children);
  return el;
}

function put(el, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    el.append(child);
  }
}

// fill puts children in place of what an element holds. Whoever had the focus
// keeps it, if there is something with the same key again.
export function fill(el, ...children) {
  const focused = el.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const start = document.activeElement?.selectionStart;
  const list = [];
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) list.push(child);
  el.replaceChildren(...list);
  if (!focused) return;
  const again = el.querySelector(`[data-key="${CSS.escape(focused)}"]`);
  if (!again) return;
  again.focus({ preventScroll: true });
  if (again.setSelectionRange && typeof start === 'number') again.setSelectionRange(start, start);
}
