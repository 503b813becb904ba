// Servers and cards, drawn to scale.

import { h } from './dom.js';
import { t, free, percent } from './i18n.js';
import { broken, idle, outOfSlices, room, takesPods, twice, used } from './store.js';
import { amounts, holderName, kindOf } from './words.js';

export const nodeLink = (name) => `#/nodes/${encodeURIComponent(name)}`;
export const cardLink = (name, index) => `${nodeLink(name)}/cards/${index}`;
export const podLink = (namespace, name) => `#/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

// tips has what the tooltip of an element shows.
export const tips = new WeakMap();

function tipped(el, tip) {
  tips.set(el, tip);
  return el;
}

// perRow is how many cards stand side by side, and gapBefore how much room is
// left between zones, in widths of a card.
const perRow = 16;
const gapBefore = 0.22;

// chassis draws a server: links as arcs over its cards, below them PCIe switches
// and NUMA nodes. Options: large, and the index of a card to highlight.
export function chassis(node, options = {}) {
  const rows = [];
  for (let first = 0; first < node.cards.length; first += perRow) {
    rows.push(row(node, node.cards.slice(first, first + perRow), options));
  }
  return h('div.chassis', {
    class: [options.large && 'large', node.cards.length > 10 && 'many'].filter(Boolean).join(' '),
    role: 'group', 'aria-label': t('node.arrows', { name: node.name }), keydown: move,
  }, rows);
}

function row(node, cards, options) {
  // Where each card begins, in widths of a card.
  const left = [];
  let at = 0;
  cards.forEach((card, i) => {
    if (i && card.zone !== cards[i - 1].zone) at += gapBefore;
    left.push(at);
    at += 1;
  });
  const width = at;
  const place = (i, n = 1) => ({ left: `${100 * left[i] / width}%`, width: `${100 * (left[i + n - 1] + 1 - left[i]) / width}%` });
  const layers = [];
  for (const run of runs(cards, (c) => c.zone)) {
    if (run.value !== null) layers.push(h('div.zone', { set: place(run.first, run.n) }, h('span', null, t('zone', { n: run.value }))));
  }
  const links = arcs(node, cards, left, width, options);
  const tiles = cards.map((card, i) => tile(node, card, place(i), options));
  const under = [];
  if (cards.some((c) => c.switch)) {
    under.push(h('div.switches', null, runs(cards, (c) => c.switch ?? null).map((run) => run.value !== null &&
      tipped(h('i', { set: place(run.first, run.n) }), () => t('switch', { name: run.value })))));
  }
  if (cards.some((c) => c.numa !== null)) {
    under.push(h('div.numas', null, runs(cards, (c) => c.numa).map((run) => run.value !== null &&
      h('span', { set: place(run.first, run.n) }, t('numa', { n: run.value })))));
  }
  return h('div.row', { class: links ? 'linked' : '' }, layers.length > 0 && h('div.zones', null, layers), links, h('div.tiles', null, tiles), under);
}

// runs groups neighbours that are alike.
function runs(cards, of) {
  const out = [];
  cards.forEach((card, i) => {
    const value = of(card);
    if (out.length && out.at(-1).value === value) out.at(-1).n++;
    else out.push({ value, first: i, n: 1 });
  });
  return out;
}

// arcs draws the links. The wider an arc spans, the higher it goes.
function arcs(node, cards, left, width, options) {
  const position = new Map(cards.map((card, i) => [card.index, i]));
  const links = node.links.filter(([a, b]) => position.has(a) && position.has(b));
  if (!links.length) return null;
  const span = Math.max(...links.map(([a, b]) => left[position.get(b)] - left[position.get(a)]));
  const unit = 100;
  const height = 100;
  return h('svg.arcs', {
    viewBox: `0 0 ${unit * width} ${height}`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': t('node.linksof', { name: node.name, n: links.length }),
  }, links.map(([a, b]) => {
    const x = unit * (left[position.get(a)] + 0.5);
    const y = unit * (left[position.get(b)] + 0.5);
    const rise = height * 1.28 * ((y - x) / unit / span) ** 0.7;
    const lit = options.highlight === a || options.highlight === b;
    return h('path', { d: `M${x} ${height} C${x} ${height - rise} ${y} ${height - rise} ${y} ${height}`, class: lit ? 'lit' : null });
  }));
}

// cardState returns the class of a card, and what is written on it: a mark for what
// is wrong, or how much memory can still be given.
export function cardState(node, card) {
  const states = [!card.healthy ? 'unhealthy' : idle(card) ? 'idle' : 'busy'];
  if (broken(node.name, card.index)) states.push('broken');
  if (outOfSlices(card)) states.push('full');
  let text = free(room(card).memoryMiB);
  if (idle(card)) text = t('card.idle');
  if (card.exclusive) text = t('card.whole');
  if (outOfSlices(card)) text = t('card.full');
  if (!card.healthy) text = '!';
  if (broken(node.name, card.index)) text = '‼';
  return { states, text };
}

// cardTroubles lists in words what is wrong with a card.
export const cardTroubles = (node, card) => [
  !card.healthy && (card.healthReason || t('card.unhealthy')),
  broken(node.name, card.index) && t(twice(node.name, card.index) ? 'card.twice' : 'card.broken'),
  outOfSlices(card) && t('card.full.long', { n: card.slots }),
].filter(Boolean);

function tile(node, card, place, options) {
  const first = options.highlight === undefined ? card.index === node.cards[0].index : options.highlight === card.index;
  const { states, text } = cardState(node, card);
  if (options.highlight === card.index) states.push('lit');
  const link = tipped(h('a.card-link', {
    href: cardLink(node.name, card.index), tabindex: first ? 0 : -1, 'data-key': `card ${node.name} ${card.index}`,
  }, h('b', null, card.index), ' ', h('span.free', { 'aria-hidden': 'true' }, text), h('span.unseen', null, ' – ', cardLabel(node, card))), () => cardTip(node, card));
  return h('div.card', { set: place, class: states.join(' '), 'data-card': `${node.name}/${card.index}` }, link, memoryBar(node, card), computeBar(card));
}

// cardLabel returns for screen readers what the drawing shows.
function cardLabel(node, card) {
  const { computePercent: compute, memoryMiB } = room(card);
  const parts = [t('card.label', { n: card.index, model: card.model || t('unknown'), memory: free(memoryMiB), compute }), ...cardTroubles(node, card)];
  for (const holder of card.holders) parts.push(`${holderName(holder)} ${amounts(holder.computePercent, holder.memoryMiB, holder.exclusive)}`);
  return parts.join(t('list.semicolon'));
}

// memoryBar draws who holds the card's memory. Pods that hold a place and no
// memory get the width of a place.
export function memoryBar(node, card, labelled = false) {
  const parts = sized(card, (h) => h.memoryMiB, card.memoryMiB, card.foreign?.memoryMiB ?? 0);
  return h('div.bar.memory', { class: card.exclusive ? 'alone' : '' }, parts.map((p) => slice(node, card, p, labelled)));
}

export function computeBar(card) {
  const parts = sized(card, (h) => h.computePercent, 100, card.foreign?.computePercent ?? 0);
  return h('div.bar.compute', { 'aria-hidden': 'true' }, parts.filter((p) => p.size > 0).map((p) =>
    h('i', { class: 'q-' + p.kind, set: { left: p.left + '%', width: p.width + '%' } })));
}

// sized lays the holders of a card side by side, to scale. Where more is booked
// than there is, all of it is shown.
function sized(card, amount, whole, foreign) {
  const parts = card.holders.map((holder) => ({ holder, kind: kindOf(holder), size: amount(holder) || (holder.memoryMiB || holder.computePercent ? 0 : whole / card.slots) }));
  if (foreign) parts.push({ kind: 'foreign', size: foreign });
  const scale = Math.max(whole, parts.reduce((n, p) => n + p.size, 0)) || 1;
  let at = 0;
  for (const p of parts) {
    p.left = 100 * at / scale;
    p.width = 100 * p.size / scale;
    at += p.size;
  }
  return parts;
}

function slice(node, card, part, labelled) {
  const { holder } = part;
  const attributes = {
    class: `q-${part.kind}${holder?.class === 'offline' ? ' offline' : ''}${part.width < 2.5 ? ' thin' : ''}`, set: { left: part.left + '%', width: part.width + '%' },
    tabindex: -1, 'data-mib': part.size, 'data-key': `slice ${node.name} ${card.index} ${holder ? holderName(holder) : 'foreign'}`,
  };
  if (!holder) return tipped(h('span.slice', { ...attributes, role: 'img', 'aria-label': t('card.foreign') }), () => t('card.foreign'));
  const label = `${holderName(holder)}${t('list.comma')}${amounts(holder.computePercent, holder.memoryMiB, holder.exclusive)}`;
  const text = labelled && part.width > 9 ? h('span', null, holder.hidden ? t('pod.hidden.short') : holder.pod) : null;
  const el = holder.hidden
    ? h('span.slice', { ...attributes, role: 'img', 'aria-label': label }, text)
    : h('a.slice', { ...attributes, href: podLink(holder.namespace, holder.pod), 'aria-label': label }, text);
  return tipped(el, () => holderTip(card, holder));
}

function holderTip(card, holder) {
  return [
    h('b', null, holderName(holder)),
    h('div', null, amounts(holder.computePercent, holder.memoryMiB, holder.exclusive)),
    h('div.dim', null, h('i.key', { class: 'q-' + kindOf(holder) }), t('qos.' + kindOf(holder)), holder.class === 'offline' ? ' · ' + t('qos.offline') : '', ' · ', t('card', { n: card.index })),
  ];
}

function cardTip(node, card) {
  return [
    h('b', null, t('card.of', { n: card.index, node: node.name })),
    h('div', null, [card.model || t('unknown'), card.zone !== null && t('zone', { n: card.zone }), card.numa !== null && t('numa', { n: card.numa })].filter(Boolean).join(' · ')),
    cardTroubles(node, card).map((text) => h('div.bad', null, text)),
    h('div', null, `${t('card.memory')}${t('list.colon')}${t('card.free', { amount: free(room(card).memoryMiB) })} / ${free(card.memoryMiB)}`),
    h('div', null, `${t('card.compute')}${t('list.colon')}${t('card.free', { amount: room(card).computePercent + '%' })}`),
    card.holders.slice(0, 6).map((holder) => h('div.dim', null, h('i.key', { class: 'q-' + kindOf(holder) }), holderName(holder))),
    card.holders.length > 6 && h('div.dim', null, t('pod.refusals.more', { n: card.holders.length - 6 })),
  ];
}

// move goes from card to card with left and right, and to the pods on a card
// with down and up.
function move(event) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-Infinity, 0], End: [Infinity, 0] }[event.key];
  const card = event.target.closest?.('.card');
  if (!step || !card || event.ctrlKey || event.metaKey || event.altKey) return;
  const cards = [...event.currentTarget.querySelectorAll('.card')];
  let to = null;
  if (step[0]) {
    const at = Math.min(cards.length - 1, Math.max(0, cards.indexOf(card) + step[0]));
    to = cards[at].querySelector('.card-link');
  } else {
    const stops = [...card.querySelectorAll('.card-link, .slice')];
    to = stops[stops.indexOf(event.target) + step[1]];
  }
  if (!to) return;
  event.preventDefault();
  for (const el of event.currentTarget.querySelectorAll('[tabindex="0"]')) el.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

// meter draws how much of something is booked.
export function meter(label, part, whole, text) {
  const p = percent(part, whole);
  return h('div.meter', null, h('span.meter-label', null, label),
    h('div.track', { role: 'meter', 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': p, 'aria-valuetext': text ?? p + '%' },
      h('i', { set: { width: (whole ? 100 * Math.min(part, whole) / whole : 0) + '%' } })),
    h('span.meter-value', null, text ?? p + '%'));
}

export function nodeMeters(node) {
  const sum = used(node);
  return h('div.meters', null, meter(t('card.compute'), sum.compute, sum.allCompute), meter(t('card.memory'), sum.memory, sum.allMemory));
}

// cells draws a node as a group of squares, one for each card, with a gap between
// zones.
export function cells(node) {
  const bad = node.cards.filter((c) => !c.healthy).length;
  const busy = node.cards.filter((c) => !idle(c)).length;
  const label = `${t('stat.cards.sub', { used: busy, idle: node.cards.length - busy })}${bad ? t('list.comma') + t('stat.cards.bad', { n: bad }) : ''}`;
  return tipped(h('a.cells', { href: nodeLink(node.name), 'aria-label': `${node.name}${t('list.colon')}${label}`, 'data-key': 'cells ' + node.name, class: takesPods(node) ? '' : 'off' },
    node.cards.map((card, i) => h('i', {
      class: [!card.healthy && 'bad', broken(node.name, card.index) && 'broken', outOfSlices(card) && 'full', i > 0 && card.zone !== node.cards[i - 1].zone && 'gap'].filter(Boolean).join(' '),
      set: { '--fill': Math.round(Math.max(100 - card.computeFreePercent, 100 - 100 * card.memoryFreeMiB / (card.memoryMiB || 1))) + '%' },
    })), node.problem && h('i.bad')), () => [h('b', null, node.name), h('div', null, label),
    !takesPods(node) && h('div.bad', null, t(node.problem ? 'node.problem' : 'state.notready'))]);
}

const keyed = (...parts) => h('li', null, ...parts);

export const mapLegend = () => h('ul.legend', { 'aria-label': t('legend') },
  [['0%', t('card.idle')], ['50%', '50%'], ['100%', t('map.full')]].map(([fill, text]) => keyed(h('i.cell', { set: { '--fill': fill } }), text)),
  keyed(h('i.cell.full', { set: { '--fill': '30%' } }), t('legend.full')), keyed(h('i.cell.bad', { set: { '--fill': '30%' } }), t('card.unhealthy')), keyed(h('i.cell.broken'), t('legend.broken')),
  keyed(h('span.off', null, h('i.cell', { set: { '--fill': '50%' } })), t('state.notready')), keyed(h('span.zoned', null, h('i.cell'), h('i.cell')), t('map.gap')));

const kinds = ['best-effort', 'fixed-share', 'burst-share', 'exclusive', 'online', 'foreign'];

export const legend = () => h('ul.legend', { 'aria-label': t('legend') },
  kinds.map((kind) => keyed(h('i.key', { class: 'q-' + kind }), t('qos.' + kind))), keyed(h('i.key.free'), t('legend.free')),
  keyed(h('i.key.full'), t('legend.full')), keyed(h('b.mark', null, '!'), t('card.unhealthy')), keyed(h('b.mark', null, '‼'), t('legend.broken')));
