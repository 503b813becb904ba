// The pages that list: overview, nodes, pods, pending pods, findings.

import { fill, h } from './dom.js';
import { ago, count, memory, percent, t } from './i18n.js';
import { attention, broken, findingsOf, idle, models, namespaces, pods, store, takesPods, withCards } from './store.js';
import { cardLink, cells, chassis, legend, nodeLink, nodeMeters, podLink } from './draw.js';
import { kindOf, reason, wants } from './words.js';

// drawn keeps what was drawn of a node, until the node or the language changes.
let drawn = new WeakMap();
export const forget = () => { drawn = new WeakMap(); };

function kept(node, what, draw) {
  if (!drawn.has(node)) drawn.set(node, new Map());
  const of = drawn.get(node);
  if (!of.has(what)) of.set(what, draw());
  return of.get(what);
}

const heading = (title, sub, ...beside) => h('div.heading', null, h('div', null, h('h1', null, title), sub && h('p.dim', null, sub)), ...beside);

export const section = (title, sub, ...children) => h('section.panel', null, h('h2', null, title), sub && h('p.dim', null, sub), ...children);

// Overview

export function overview(main) {
  const c = store.cluster;
  if (!c.cards && !withCards().length) { fill(main, heading(t('overview.title')), h('p.empty', null, t('none.cards'))); return; }
  fill(main,
    h('h1.unseen', null, t('overview.title')), partView(), stats(c),
    h('div.columns', null,
      withCards().length <= fewNodes ? servers() : h('section.panel.map', null, h('div.panel-head', null, h('div', null, h('h2', null, t('map.title')), h('p.dim', null, t('map.sub'))), mapLegend()), map()),
      h('div.stack', null, attentionPanel(), reasonsPanel(), modelsPanel(c))));
}

export const partView = () => store.viewer && !store.viewer.everything && h('p.banner', null, t('viewer.part'));

function stats(c) {
  const fragmentation = c.fragmentationPercent;
  const oldest = store.pending.map((p) => p.created).filter(Boolean).sort()[0];
  const bad = c.cards - c.healthy;
  return h('div.stats', null,
    stat(t('stat.cards'), count(c.cards), t('stat.cards.sub', { used: count(c.inUse), idle: count(c.healthy - c.inUse) }), { bad: bad > 0 && t('stat.cards.bad', { n: count(bad) }), share: [c.inUse, c.cards], href: '#/nodes' }),
    stat(t('stat.compute'), percent(c.allocated.computePercent, c.total.computePercent) + '%',
      t('stat.compute.sub', { used: count(c.allocated.computePercent / 100), all: count(c.total.computePercent / 100) }), { share: [c.allocated.computePercent, c.total.computePercent] }),
    stat(t('stat.memory'), percent(c.allocated.memoryMiB, c.total.memoryMiB) + '%',
      t('stat.memory.sub', { used: memory(c.allocated.memoryMiB), all: memory(c.total.memoryMiB) }), { share: [c.allocated.memoryMiB, c.total.memoryMiB] }),
    stat(t('stat.fragmentation'), fragmentation === null ? '–' : fragmentation + '%', t(fragmentation === null ? 'stat.fragmentation.none' : 'stat.fragmentation.sub'),
      { about: t('stat.fragmentation.about'), share: [fragmentation ?? 0, 100] }),
    stat(t('stat.zones'), c.zones ? count(c.wholeZones) : '–', c.zones ? t('stat.zones.sub', { n: count(c.zones), most: c.free.linkedCards }) : t('stat.zones.none'),
      { about: t('stat.zones.about'), share: [c.wholeZones, c.zones] }),
    stat(t('stat.pending'), count(c.pending), c.pending === 0 ? t('stat.pending.none') : oldest ? t('stat.pending.sub', { age: ago(oldest) }) : '',
      { href: '#/pending', bad: c.hiddenPending > 0 && t('stat.pending.hidden', { n: c.hiddenPending }) }));
}

function stat(label, value, sub, { bad, about, share, href } = {}) {
  return h('div.stat', { title: about },
    h('div.stat-label', null, href ? h('a', { href, 'data-key': 'stat ' + href }, label) : label),
    h('div.stat-value', null, value), share && h('div.track', { 'aria-hidden': 'true' }, h('i', { set: { width: percent(share[0], share[1]) + '%' } })),
    h('div.stat-sub', null, sub), bad && h('div.stat-sub.bad', null, bad));
}

// fewNodes is up to how many nodes the overview draws them as servers; more are
// a map.
const fewNodes = 8;

const servers = () => h('div.stack', null, h('div.panel-head', null, h('h2', null, t('nodes.title')), legend()),
  h('div.servers', null, withCards().map((node) => kept(node, 'panel false ' + findingsKey(node), () => nodePanel(node, false)))));

// mapped is how many nodes the map shows at once.
const mapped = 1500;

function map() {
  const list = withCards();
  return h('div.cellmap', { class: list.length <= 40 ? 'big' : list.length <= 150 ? 'mid' : '' },
    list.slice(0, mapped).map((node) => kept(node, 'cells' + brokenCards(node), () => list.length <= 150
      ? h('div.named', null, h('span', { 'aria-hidden': 'true' }, node.name), cells(node)) : cells(node))),
    list.length > mapped && h('p.dim', null, t('map.more', { n: list.length - mapped })));
}

// brokenCards tells apart what is drawn of a node by what is wrong with it, which
// is not a part of the node.
const brokenCards = (node) => node.cards.filter((c) => broken(node.name, c.index)).map((c) => c.index).join();

const mapLegend = () => h('ul.legend', { 'aria-label': t('legend') },
  h('li', null, h('i.cell', { set: { '--fill': '0%' } }), t('map.less')), h('li', null, h('i.cell', { set: { '--fill': '50%' } }), '50%'),
  h('li', null, h('i.cell', { set: { '--fill': '100%' } }), t('map.full')), h('li', null, h('i.cell.bad'), t('map.bad')));

function reasonsPanel() {
  const groups = [...Map.groupBy(store.pending, (p) => p.code)].sort((a, b) => b[1].length - a[1].length || a[0].localeCompare(b[0]));
  if (!groups.length) return section(t('reasons.title'), null, h('p.empty', null, t('reasons.none')));
  const most = groups[0][1].length;
  return section(t('reasons.title'), null, h('ul.bars', null, groups.map(([code, list]) => h('li', null,
    h('a', { href: '#/pending?reason=' + code, 'data-key': 'reason ' + code }, t('code.' + code)),
    h('span.num', null, t('reasons.pods', { n: count(list.length) })),
    h('div.track', { 'aria-hidden': 'true' }, h('i', { set: { width: 100 * list.length / most + '%' } }))))));
}

const attentionShown = 5;

function attentionPanel() {
  const list = attention().filter((a) => a.kind !== 'note');
  if (!list.length) return section(t('attention.title'), null, h('p.empty.good', null, t('attention.none')));
  return section(t('attention.title'), null, h('ul.findings', null, list.slice(0, attentionShown).map(attentionItem)),
    list.length > attentionShown && h('p', null, h('a', { href: '#/findings', 'data-key': 'all findings' }, t('attention.all', { n: count(list.length) }))));
}

function modelsPanel(c) {
  if (models().length < 2) return null;
  return section(t('models.title'), null, h('ul.bars', null, models().map((model) => h('li', null,
    h('a', { href: '#/nodes?model=' + encodeURIComponent(model), 'data-key': 'model ' + model }, model), h('span.num', null, t('models.cards', { n: count(c.models[model]) })),
    h('div.track', { 'aria-hidden': 'true' }, h('i', { set: { width: percent(c.models[model], c.cards) + '%' } }))))));
}

// Findings

export function attentionItem(item) {
  const node = store.nodes.get(item.node);
  const where = (text) => (node ? h('a', { href: item.card ? cardLink(item.node, item.card.index) : nodeLink(item.node), 'data-key': `at ${item.kind} ${item.node} ${item.card?.index ?? ''}` }, text) : text);
  switch (item.kind) {
    case 'unhealthy':
      return h('li.warn', null, h('b', null, where(t('finding.unhealthy', { n: item.card.index, node: item.node }))), h('p', null, item.card.healthReason || t('finding.unhealthy.why')));
    case 'notready': return h('li.warn', null, h('b', null, where(t('finding.notready', { name: item.node }))));
    case 'cordoned': return h('li.note', null, h('b', null, where(t('finding.cordoned', { name: item.node }))));
  }
  return findingItem(item.finding);
}

export function findingItem(f) {
  const node = store.nodes.get(f.node);
  const to = f.index !== undefined ? cardLink(f.node, f.index) : nodeLink(f.node);
  const title = t('rule.' + f.rule);
  return h('li', { class: f.note ? 'note' : 'bad' },
    h('b', null, node ? h('a', { href: to, 'data-key': `finding ${f.rule} ${f.node} ${f.index ?? ''} ${f.pods.join()}` }, title) : title),
    h('p', null, f.hidden ? t('finding.hidden') : f.message),
    f.pods.length > 0 && h('p.dim', null, f.pods.slice(0, 8).map((pod, i) => [i > 0 && t('list.comma'), podName(pod)])));
}

// podName links to a pod that is named as namespace/name.
export function podName(pod) {
  const [namespace, name] = pod.split('/');
  return h('a', { href: podLink(namespace, name), 'data-key': 'pod ' + pod }, pod);
}

export function findings(main) {
  const list = attention();
  const groups = [['finding.violation', 'violation'], ['finding.health', 'unhealthy'], ['finding.node', 'notready', 'cordoned'], ['finding.note', 'note']];
  fill(main, heading(t('findings.title'), t('findings.sub')), partView(),
    list.length === 0 && h('p.empty.good', null, t('findings.none')),
    groups.map(([title, ...kinds]) => {
      const of = list.filter((item) => kinds.includes(item.kind));
      return of.length > 0 && section(`${t(title)} · ${count(of.length)}`, null, h('ul.findings', null, of.slice(0, 500).map(attentionItem)));
    }));
}

// Filters

const nodeStates = {
  idle: (n) => n.cards.some((c) => c.healthy && idle(c)),
  used: (n) => n.cards.some((c) => !idle(c)),
  full: (n) => n.cards.length > 0 && !n.cards.some((c) => c.healthy && idle(c)),
  unhealthy: (n) => n.cards.some((c) => !c.healthy),
  problem: (n) => n.problem || findingsOf(n.name).length > 0,
  notready: (n) => !takesPods(n),
};

const matchesNode = (f) => (n) =>
  (!f.node || n.name.toLowerCase().includes(f.node.toLowerCase())) &&
  (!f.model || n.cards.some((c) => c.model === f.model)) &&
  (!f.namespace || n.cards.some((c) => c.holders.some((holder) => holder.namespace === f.namespace))) &&
  (!f.state || (nodeStates[f.state]?.(n) ?? true));

// filters draws the controls; a change goes into the address, where links to it
// can be taken from.
function filters(route, states, shown) {
  const change = (key) => (event) => route.filter({ [key]: event.target.value });
  const select = (key, options, label = (x) => x) => h('label', null, h('span', null, t('filter.' + key)),
    h('select', { 'data-key': 'filter ' + key, change: change(key) }, h('option', { value: '' }, t('filter.any')),
      options.map((o) => h('option', { value: o, selected: route.query[key] === o }, label(o)))));
  const any = Object.values(route.query).some(Boolean);
  const input = h('input', { type: 'search', placeholder: t('filter.hint'), value: route.query.node ?? '', 'data-key': 'filter node', id: 'filter', input: change('node'), spellcheck: 'false' });
  return h('form.filters', { 'aria-label': t('filter.label'), submit: (e) => e.preventDefault() },
    h('label', null, h('span', null, t('filter.node')), input),
    select('model', models()), select('namespace', namespaces()), select('state', states, (s) => t(states === podStates ? 'podstate.' + s : 'state.' + s)),
    h('button', { type: 'button', 'data-key': 'filter clear', disabled: !any, click: () => route.filter(null) }, t('filter.clear')),
    h('output', null, shown));
}

// Nodes

// eager is up to how many nodes everything is drawn at once; with more, the
// drawing of a node is there while it is near the window.
const eager = 40;
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) target.show?.(); else target.hide?.();
  }
}, { rootMargin: '800px 0px' });

export function nodesPage(main, route) {
  const all = withCards();
  const list = all.filter(matchesNode(route.query));
  const panels = list.map((node) => kept(node, `panel ${list.length > eager} ${findingsKey(node)}`, () => nodePanel(node, list.length > eager)));
  const grid = main.querySelector('.servers');
  const filter = filters(route, Object.keys(nodeStates), t('filter.shown', { n: count(list.length), all: count(all.length) }));
  if (grid && main.dataset.page === 'nodes') {
    fill(main.querySelector('.filter-bar'), filter);
    update(grid, panels);
  } else {
    fill(main, heading(t('nodes.title'), null, legend()), h('div.filter-bar', null, filter), h('div.servers', null, panels));
  }
  main.querySelector('.servers').dataset.empty = list.length ? '' : t('none.nodes');
}

const findingsKey = (node) => findingsOf(node.name).map((f) => f.rule + f.index).join();

// update puts the panels in place of those that are there, and touches only what
// is different.
function update(grid, panels) {
  const same = grid.children.length === panels.length;
  if (!same) { fill(grid, panels); return; }
  panels.forEach((panel, i) => {
    const old = grid.children[i];
    if (old === panel) return;
    const focused = old.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    if (old.shown) panel.show?.();
    old.replaceWith(panel);
    if (focused) panel.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  });
}

export function nodeState(node) {
  if (node.problem) return h('span.pill.bad', null, t('node.problem'));
  if (!node.ready) return h('span.pill.bad', null, t('node.notready'));
  if (!node.schedulable) return h('span.pill.warn', null, t('node.cordoned'));
  return h('span.pill.good', null, t('node.ready'));
}

// nodeFacts says what a server has, and at length who serves it.
export function nodeFacts(node, long = false) {
  const kinds = Map.groupBy(node.cards, (c) => c.model || t('unknown'));
  const cards = [...kinds].map(([model, list]) => t('node.cards', { n: list.length, model })).join(' + ');
  return [cards, t('mode.' + (node.mode ?? '')), (long || node.servedBy !== 'daybreak') && t('node.served', { who: t('served.' + node.servedBy) })].filter(Boolean).join(' · ');
}

function nodePanel(node, lazy) {
  const body = h('div.server-body');
  const panel = h('article.server', { 'data-node': node.name, class: lazy ? 'lazy' : '', 'aria-label': node.name },
    h('div.server-head', null,
      h('div', null, h('h2', null, h('a', { href: nodeLink(node.name), 'data-key': 'node ' + node.name }, node.name)), nodeState(node), h('p.dim', null, nodeFacts(node))),
      node.cards.length > 0 && nodeMeters(node)),
    nodeTroubles(node), body);
  panel.show = () => { if (!panel.shown) { panel.shown = true; body.replaceChildren(...(node.cards.length ? [chassis(node)] : [])); } };
  if (!lazy) { panel.show(); return panel; }
  panel.hide = () => { if (panel.shown) { panel.shown = false; body.replaceChildren(); } };
  near.observe(panel);
  return panel;
}

export function nodeTroubles(node) {
  if (node.problem) return h('p.trouble', null, node.problem);
  const hidden = node.hiddenUnaccounted ?? 0;
  if (!node.unaccounted?.length && !hidden) return null;
  return h('p.trouble', null, t('node.unaccounted'), ' ', (node.unaccounted ?? []).map((pod, i) => [i > 0 && t('list.comma'), podName(pod)]),
    hidden > 0 && [' ', t('node.unaccounted.hidden', { n: hidden })]);
}

// Pods

const podStates = ['placed', 'pending'];
const pageSize = 200;
let shownRows = pageSize;
export const fewRows = () => { shownRows = pageSize; };

// rows draws the first rows of a long table, and a button for more.
function rows(list, draw, redraw) {
  const more = list.length - shownRows;
  return [list.slice(0, shownRows).map(draw),
    more > 0 && h('tr', null, h('td', { colspan: 9 }, h('button', { type: 'button', 'data-key': 'more', click: () => { shownRows += pageSize; redraw(); } }, t('more', { n: Math.min(more, pageSize) }))))];
}

export const table = (heads, body) => h('div.scroll', { tabindex: 0, role: 'group', 'aria-label': heads.filter(Boolean).join(', ') },
  h('table', null, h('thead', null, h('tr', null, heads.map((text) => h('th', { scope: 'col' }, text)))), h('tbody', null, body)));

export function podsPage(main, route) {
  const f = route.query;
  const held = f.state === 'pending' ? [] : [...pods().values()].filter((p) =>
    (!f.node || p.node.name.toLowerCase().includes(f.node.toLowerCase()) || p.key.includes(f.node)) && (!f.model || p.cards.some(({ card }) => card.model === f.model)) && (!f.namespace || p.namespace === f.namespace));
  const waiting = f.state === 'placed' || f.model ? [] : store.pending.filter((p) => (!f.namespace || p.namespace === f.namespace) && (!f.node || (p.namespace + '/' + p.name).includes(f.node)));
  const list = [...waiting.map((p) => ({ pending: p })), ...held];
  const all = pods().size + store.pending.length;
  const draw = () => podsPage(main, route);
  fill(main, heading(t('pods.title'), t('pods.sub')), partView(),
    filters(route, podStates, t('filter.pods', { n: count(list.length), all: count(all) })),
    list.length === 0 ? h('p.empty', null, t('none.pods')) : table([t('pod'), t('pod.state'), t('pod.node'), t('pod.cards'), t('card.compute'), t('card.memory'), t('card.qos')],
      rows(list, (p) => (p.pending ? pendingRow(p.pending) : podRow(p)), draw)));
}

function pendingRow(p) {
  return h('tr', null, h('td', null, podName(p.namespace + '/' + p.name)), h('td', null, h('span.pill.warn', null, t('podstate.pending'))),
    h('td', null, '–'), h('td', { colspan: 4 }, h('span.dim', null, wants(p))));
}

function podRow(p) {
  const compute = p.cards.reduce((n, { holder }) => n + holder.computePercent, 0);
  const mib = p.cards.reduce((n, { holder }) => n + holder.memoryMiB, 0);
  return h('tr', null, h('td', null, podName(p.key)), h('td', null, h('span.pill.good', null, t('podstate.placed'))),
    h('td', null, h('a', { href: nodeLink(p.node.name), 'data-key': 'podnode ' + p.key }, p.node.name)),
    h('td', null, p.cards.map(({ card }, i) => [i > 0 && ' ', h('a.chip', { href: cardLink(p.node.name, card.index), 'data-key': `podcard ${p.key} ${card.index}` }, card.index)])),
    h('td.num', null, compute + '%'), h('td.num', null, memory(mib)), h('td', null, qosTag(p.cards[0].holder)));
}

export const qosTag = (holder) => h('span.tag', null, h('i.key', { class: 'q-' + kindOf(holder) }), t('qos.' + kindOf(holder)), holder.class === 'offline' ? ' · ' + t('qos.offline') : '');

// Pending pods

export function pendingPage(main, route) {
  const groups = [...Map.groupBy(store.pending, (p) => p.code)].sort((a, b) => b[1].length - a[1].length);
  const list = store.pending.filter((p) => (!route.query.reason || p.code === route.query.reason) && (!route.query.namespace || p.namespace === route.query.namespace))
    .toSorted((a, b) => (a.created ?? '').localeCompare(b.created ?? ''));
  const hidden = store.cluster.hiddenPending ?? 0;
  const chip = (code, text) => h('button.chip', { type: 'button', 'aria-pressed': (route.query.reason ?? '') === code ? 'true' : 'false', 'data-key': 'chip ' + code, click: () => route.filter({ reason: code }) }, text);
  const draw = () => pendingPage(main, route);
  fill(main, heading(t('pending.title'), t('pending.sub')), partView(),
    groups.length > 0 && h('div.chips', { role: 'group', 'aria-label': t('pod.reason') }, chip('', `${t('filter.any')} · ${count(store.pending.length)}`), groups.map(([code, of]) => chip(code, `${t('code.' + code)} · ${count(of.length)}`))),
    hidden > 0 && h('p.dim', null, t('pending.hidden', { n: hidden })),
    list.length === 0 ? h('p.empty.good', null, t('pending.none')) : table([t('pod'), t('pod.wants'), t('pod.age'), t('pod.reason')],
      rows(list, (p) => h('tr', null, h('td', null, podName(p.namespace + '/' + p.name)), h('td', null, wants(p)), h('td.nowrap', null, p.created ? ago(p.created) : '–'),
        h('td.reason', null, h('b', null, t('code.' + p.code)), h('div.dim', null, reason(p)))), draw)));
}
