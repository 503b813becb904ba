// The page's frame: addresses, keys, language, theme, tooltip.

import { fill, h } from './dom.js';
import { age, clock, keep, lang, read, setLanguage, t } from './i18n.js';
import { failures, follow, link, store } from './store.js';
import { tips } from './draw.js';
import { fewRows, findings, forget, nodesPage, overview, pendingPage, podsPage } from './views.js';
import { namespacesPage } from './namespaces.js';
import { cardPage, nodePage, podPage } from './detail.js';

const main = document.getElementById('main');

const pages = [
  { nav: 'overview', path: /^\/$/, draw: overview, href: '#/' },
  { nav: 'nodes', path: /^\/nodes$/, draw: nodesPage, href: '#/nodes' },
  { nav: 'pods', path: /^\/pods$/, draw: podsPage, href: '#/pods' },
  { nav: 'namespaces', path: /^\/namespaces$/, draw: namespacesPage, href: '#/namespaces' },
  { nav: 'pending', path: /^\/pending$/, draw: pendingPage, href: '#/pending' },
  { nav: 'findings', path: /^\/findings$/, draw: findings, href: '#/findings' },
  { nav: 'nodes', path: /^\/nodes\/(?<name>[^/]+)$/, draw: nodePage },
  { nav: 'nodes', path: /^\/nodes\/(?<name>[^/]+)\/cards\/(?<index>\d+)$/, draw: cardPage },
  { nav: 'pods', path: /^\/pods\/(?<namespace>[^/]+)\/(?<name>[^/]+)$/, draw: podPage },
];

// route reads the address: what comes after #, so that links work behind any
// proxy.
function route() {
  const [path, search = ''] = location.hash.slice(1).split('?');
  const hash = location.hash;
  for (const page of pages) {
    const match = page.path.exec(path || '/');
    if (!match) continue;
    const found = { page, query: Object.fromEntries(new URLSearchParams(search)), current: () => location.hash === hash };
    for (const [key, value] of Object.entries(match.groups ?? {})) {
      try { found[key] = decodeURIComponent(value); } catch { found[key] = value; }
    }
    found.filter = (changes) => {
      const query = new URLSearchParams(Object.entries(changes ? { ...found.query, ...changes } : {}).filter(([, v]) => v));
      history.replaceState(null, '', `#${path || '/'}${query.size ? '?' + query : ''}`);
      fewRows();
      redraw();
    };
    return found;
  }
  return { page: { nav: null, draw: notFound }, query: {}, filter: () => {}, current: () => location.hash === hash };
}

function notFound(to) {
  fill(to, h('h1', null, t('gone.page')), h('p', null, t('gone.page.why', { address: location.hash })), h('p', null, h('a', { href: '#/', 'data-key': 'home' }, t('nav.overview'))));
}

function redraw() {
  const to = route();
  drawNav(to);
  if (!store.ready) { fill(main, h('p.dim.loading', null, t('loading'))); return; }
  to.page.draw(main, to);
  main.dataset.page = to.page.nav + (to.page.href ? '' : ' detail');
  document.title = [to.name && (to.namespace ? `${to.namespace}/${to.name}` : to.name), t(to.page.nav ? 'nav.' + to.page.nav : 'gone.page'), 'Daybreak'].filter(Boolean).join(' – ');
}

let waiting = false;

// soon draws once for all that changes before the next frame.
function soon() {
  if (waiting) return;
  waiting = true;
  const go = () => { waiting = false; redraw(); performance.mark('daybreak-drawn'); };
  // A page in the background has no frames, and is drawn when it is seen again.
  if (document.hidden) setTimeout(go, 1000); else requestAnimationFrame(go);
}

function drawNav(to) {
  const badge = { pending: store.cluster?.pending, findings: store.ready && failures().length };
  const nav = document.getElementById('nav');
  nav.setAttribute('aria-label', t('nav.label'));
  fill(nav, pages.filter((p) => p.href).map((p) => h('a', { href: p.href, 'aria-current': p.nav === to.page.nav ? 'page' : null, 'data-key': 'nav ' + p.nav },
    t('nav.' + p.nav), badge[p.nav] > 0 && h('span.badge', { class: p.nav === 'findings' ? 'bad' : '' }, badge[p.nav]))));
}

// Tools at the top right.

const themes = ['auto', 'light', 'dark'];
let theme = themes.includes(read('theme')) ? read('theme') : 'auto';

function drawTools() {
  document.documentElement.lang = lang() === 'zh' ? 'zh-CN' : 'en';
  document.documentElement.dataset.theme = theme;
  document.getElementById('skip').textContent = t('skip');
  fill(document.getElementById('tools'),
    h('span.live', null, h('span'), h('time')),
    store.viewer?.name && h('span.dim.who', { title: store.viewer.name }, store.viewer.name),
    store.viewer?.name && h('form', { method: 'post', action: 'logout' }, h('button', { type: 'submit' }, t('tool.logout'))),
    h('button', { type: 'button', id: 'language', 'data-key': 'language', 'aria-label': t('tool.language.label'), click: switchLanguage }, t('tool.language')),
    h('button.icon', { type: 'button', id: 'theme', 'data-key': 'theme', title: t('tool.theme.' + theme), 'aria-label': t('tool.theme.' + theme), click: switchTheme }, { auto: '◐', light: '☀', dark: '☾' }[theme]),
    h('button.icon', { type: 'button', 'data-key': 'keys', title: t('tool.keys'), 'aria-label': t('tool.keys'), click: showKeys }, '?'));
  drawLink();
}

function switchLanguage() {
  setLanguage(lang() === 'en' ? 'zh' : 'en');
  forget();
  main.dataset.page = '';
  drawTools();
  redraw();
}

function switchTheme() {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  keep('theme', theme);
  drawTools();
}

// drawLink shows the time, whether what is shown is up to date, and if not since
// when. It is called every second, and changes nothing else.
function drawLink() {
  const { state, cause, heard } = link;
  const live = document.querySelector('.live');
  live.className = 'live ' + state;
  live.title = t(state === 'on' ? 'live.on.long' : 'live.off.long');
  live.firstChild.textContent = t('live.' + state);
  live.lastChild.textContent = state === 'on' || heard === null ? clock(Date.now()) : t('live.age', { age: age(heard) });
  const lost = document.getElementById('lost');
  lost.hidden = state !== 'off';
  lost.textContent = heard === null ? t('lost.never.' + cause) : t('lost.' + cause, { time: clock(heard), age: age(heard) });
  main.classList.toggle('stale', state === 'off');
}

function connected() {
  drawLink();
  document.getElementById('said').textContent = link.state === 'off' ? document.getElementById('lost').textContent : t('live.' + link.state);
}

// Keys.

function showKeys() {
  const dialog = document.getElementById('help');
  const keys = [['1–6', 'keys.pages'], ['/', 'keys.filter'], ['← → ↑ ↓', 'keys.arrows'], ['Enter', 'keys.enter'], ['L', 'keys.language'], ['T', 'keys.theme'], ['?', 'keys.help']];
  dialog.setAttribute('aria-label', t('tool.keys'));
  fill(dialog, h('h2', null, t('tool.keys')), h('dl.keys', null, keys.map(([key, text]) => h('div', null, h('dt', null, h('kbd', null, key)), h('dd', null, t(text))))),
    h('form', { method: 'dialog' }, h('button', { type: 'submit' }, t('keys.close'))));
  dialog.showModal();
}

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') hideTip();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, select, textarea, dialog')) return;
  const nav = pages.filter((p) => p.href);
  if (event.key >= '1' && event.key <= String(nav.length)) location.hash = nav[event.key - 1].href;
  else if (event.key === '/') { event.preventDefault(); toFilter(); }
  else if (event.key === '?') showKeys();
  else if (event.key.toLowerCase() === 'l') switchLanguage();
  else if (event.key.toLowerCase() === 't') switchTheme();
});

function toFilter() {
  if (!document.getElementById('filter')) { location.hash = '#/nodes'; redraw(); }
  document.getElementById('filter')?.focus();
}

// Tooltip.

const tip = document.getElementById('tip');

function showTip(event) {
  let el = event.target;
  while (el && !tips.has(el)) el = el.parentElement;
  if (!el) { hideTip(); return; }
  const content = tips.get(el)();
  fill(tip, ...(Array.isArray(content) ? content : [content]));
  tip.hidden = false;
  const at = el.getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  const below = at.bottom + 8 + size.height <= innerHeight;
  tip.style.left = Math.max(8, Math.min(innerWidth - size.width - 8, at.left + at.width / 2 - size.width / 2)) + 'px';
  tip.style.top = (below ? at.bottom + 8 : Math.max(8, at.top - size.height - 8)) + 'px';
}

function hideTip() { tip.hidden = true; }

tip.setAttribute('aria-hidden', 'true');
main.addEventListener('pointerover', showTip);
main.addEventListener('pointerleave', hideTip);
main.addEventListener('focusin', showTip);
main.addEventListener('focusout', hideTip);
addEventListener('scroll', hideTip, { passive: true });

addEventListener('hashchange', () => {
  if (location.hash === '#main') { history.replaceState(null, '', '#/'); main.focus(); return; }
  fewRows();
  hideTip();
  redraw();
  scrollTo(0, 0);
  // Readers of screens go on at the new page, whose title is read out.
  if (!main.contains(document.activeElement)) main.focus({ preventScroll: true });
  document.getElementById('said').textContent = document.title;
});
// A printed page has all drawings, not only those near the window.
addEventListener('beforeprint', () => { for (const panel of main.querySelectorAll('.server')) panel.show?.(); });
document.getElementById('skip').addEventListener('click', (event) => { event.preventDefault(); main.focus(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden && store.ready) redraw(); });
setInterval(() => { if (!document.hidden && store.ready) soon(); }, 30000); // ages advance
setInterval(() => { if (!document.hidden) drawLink(); }, 1000);

drawTools();
redraw();
follow(() => { if (store.viewer?.name && !document.querySelector('.who')) drawTools(); soon(); }, connected);
