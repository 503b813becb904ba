// The pages that list: overview, nodes, pods, pending pods, findings.

import { fill, h } from './dom.js';
import { age, ago, cardsUsed, count, free, memory, percent, t, usedOf } from './i18n.js';
import { attention, broken, failures, findingsOf, idle, models, namespaces, natural, pods, store, takesPods, used, withCards } from './store.js';
import { firstRun } from './first.js';
import { cardLink, cells, chassis, legend, mapLegend, nodeLink, nodeMeters, podLink } from './draw.js';
import { kindOf, reason, runbook, runbookOf, wants } from './words.js';

// drawn keeps what was drawn of a node, until the node or the language changes.
let drawn = new WeakMap();
export const forget = () => { drawn = new WeakMap(); };

function kept(node, what, draw) {
  if (!drawn.has(node)) drawn.set(node, new Map());
  const of = drawn.get(node);
  if (!of.has(what)) of.set(what, draw());
  return of.get(what);
}

export const heading = (title, sub, ...beside) => h('div.heading', null, h('div', null, h('h1', null, title), sub && h('p.dim', null, sub)), ...beside);

export const section = (title, sub, ...children) => h('section.panel', null, h('h2', null, title), sub && h('p.dim', null, sub), ...children);

// Overview

export function overview(main) {
  const c = store.cluster;
  if (!c.cards && !withCards().length) { fill(main, heading(t('nav.overview')), h('p.empty', null, t('none.cards'))); return; }
  fill(main,
    h('h1.unseen', null, t('nav.overview')), partView(), firstRun(() => overview(main)), stats(c),
    h('div.columns', null,
      withCards().length <= fewNodes ? servers() : h('section.panel.map', null, h('div.panel-head', null, h('div', null, h('h2', null, t('map.title')), h('p.dim', null, t('map.sub'))), mapLegend()), map()),
      h('div.stack', null, attentionPanel(), reasonsPanel(), modelsPanel(c))));
}

export const partView = () => store.viewer && !store.viewer.everything && h('p.banner', null, t('viewer.part'));

function stats(c) {
  const fragmentation = c.fragmentationPercent;
  const unknown = { TooFewPods: 'stat.fragmentation.few', NothingFree: 'stat.fragmentation.none' }[c.fragmentationUnknown];
  const violations = store.findings.filter((f) => !f.note).length;
  const closed = withCards().filter((n) => !takesPods(n)).flatMap((n) => n.cards).filter((card) => card.healthy && idle(card)).length;
  const oldest = store.pending.map((p) => p.created).filter(Boolean).sort()[0];
  const bad = c.cards - c.healthy;
  return h('div.stats', null,
    stat(t('stat.cards'), count(c.cards), t('stat.cards.sub', { used: count(c.inUse), idle: count(c.healthy - c.inUse) }) + (closed ? t('list.comma') + t('stat.cards.closed', { n: count(closed) }) : ''), { bad: [bad > 0 && t('stat.cards.bad', { n: count(bad) }),
      violations > 0 && h('a', { href: '#/findings', 'data-key': 'stat findings' }, t('stat.violations', { n: count(violations) }))], share: [c.inUse, c.cards], href: '#/nodes' }),
    stat(t('stat.compute'), percent(c.allocated.computePercent, c.total.computePercent) + '%',
      t('stat.compute.sub', { used: cardsUsed(c.allocated.computePercent), all: count(c.total.computePercent / 100) }), { share: [c.allocated.computePercent, c.total.computePercent] }),
    stat(t('stat.memory'), percent(c.allocated.memoryMiB, c.total.memoryMiB) + '%',
      t('stat.memory.sub', { used: usedOf(c.allocated.memoryMiB, c.total.memoryMiB), all: free(c.total.memoryMiB) }), { share: [c.allocated.memoryMiB, c.total.memoryMiB] }),
    stat(t('stat.fragmentation'), fragmentation === null ? '–' : fragmentation + '%', t(fragmentation === null ? unknown ?? 'stat.fragmentation.none' : 'stat.fragmentation.sub'),
      { about: t('stat.fragmentation.about'), share: [fragmentation ?? 0, 100] }),
    stat(t('stat.zones'), c.zones ? count(c.wholeZones) : '–', c.zones ? t('stat.zones.sub', { n: count(c.zones), most: c.free.linkedCards }) : t('stat.zones.none'),
      { about: t('stat.zones.about'), share: [c.wholeZones, c.zones] }),
    stat(t('stat.pending'), count(c.pending), c.pending === 0 ? t('stat.pending.none') : oldest ? t('stat.pending.sub', { age: age(oldest) }) : '',
      { href: '#/pending', bad: c.hiddenPending > 0 && t('stat.pending.hidden', { n: c.hiddenPending }) }));
}

function stat(label, value, sub, { bad, about, share, href } = {}) {
  return h('div.stat', { title: about },
    h('div.stat-label', null, href ? h('a', { href, 'data-key': 'stat ' + href }, label) : label),
    h('div.stat-value', null, value), share && h('div.track', { 'aria-hidden': 'true' }, h('i', { set: { width: percent(share[0], share[1]) + '%' } })),
    h('div.stat-sub', null, sub), [bad].flat().filter(Boolean).map((line) => h('div.stat-sub.bad', null, line)));
}

// fewNodes is up to how many nodes the overview draws them as servers; more are
// a map.
const fewNodes = 8;

const servers = () => h('div.stack', null, h('div.panel-head', null, h('h2', null, t('nav.nodes')), legend()),
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

// brokenCards lists the cards of a node on which a rule is violated. It is not a part of
// the node.
const brokenCards = (node) => node.cards.filter((c) => broken(node.name, c.index)).map((c) => c.index).join();

function reasonsPanel() {
  const groups = [...Map.groupBy(store.pending, (p) => p.code)].sort((a, b) => b[1].length - a[1].length || a[0].localeCompare(b[0]));
  if (!groups.length) return section(t('reasons.title'), null, h('p.empty', null, t('pending.none')));
  const most = groups[0][1].length;
  return section(t('reasons.title'), null, h('ul.bars', null, groups.map(([code, list]) => h('li', null,
    h('a', { href: '#/pending?reason=' + code, 'data-key': 'reason ' + code }, t('code.' + code)),
    h('span.num', null, t('reasons.pods', { n: count(list.length) })),
    h('div.track', { 'aria-hidden': 'true' }, h('i', { set: { width: 100 * list.length / most + '%' } }))))));
}

const attentionShown = 5;

function attentionPanel() {
  const list = failures();
  if (!list.length) return section(t('attention.title'), null, h('p.empty.good', null, t('findings.none')));
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
  const key = `${item.kind} ${item.node} ${item.card?.index ?? ''}`;
  const where = (text) => h('b', null, node ? h('a', { href: item.card ? cardLink(item.node, item.card.index) : nodeLink(item.node), 'data-key': 'at ' + key }, text) : text);
  switch (item.kind) {
    case 'unhealthy':
      return h('li.warn', null, where(t('finding.unhealthy', { n: item.card.index, node: item.node })), h('p', null, item.card.healthReason || t('finding.unhealthy.why')), h('p', null, runbook('card-unhealthy', key)));
    case 'notready': return h('li.warn', null, where(t('finding.notready', { name: item.node })));
    case 'paused': return h('li.warn', null, where(t('finding.paused', { name: item.node })), h('p', null, node?.paused), h('p', null, runbook('agent-silent', key)));
    case 'cordoned': return h('li.note', null, where(t('finding.cordoned', { name: item.node })));
    case 'tainted': return h('li.note', null, where(t('finding.tainted', { name: item.node })), h('p', null, h('code', null, node?.taint)));
  }
  return findingItem(item.finding);
}

export function findingItem(f) {
  const node = store.nodes.get(f.node);
  const to = f.index !== undefined ? cardLink(f.node, f.index) : nodeLink(f.node);
  const title = t('rule.' + f.rule);
  const key = `${f.rule} ${f.node} ${f.index ?? ''} ${f.pods.join()}`;
  return h('li', { class: f.note ? 'note' : 'bad' },
    h('b', null, node ? h('a', { href: to, 'data-key': 'finding ' + key }, title) : title),
    h('p', null, f.hidden ? t('finding.hidden') : f.message),
    f.pods.length > 0 && h('p.dim', null, f.pods.slice(0, 8).map((pod, i) => [i > 0 && t('list.item'), podName(pod)])),
    h('p', null, runbookOf(f, key)));
}

// podName links to a pod that is named as namespace/name.
export function podName(pod) {
  const [namespace, name] = pod.split('/');
  return h('a', { href: podLink(namespace, name), 'data-key': 'pod ' + pod }, pod);
}

export function findings(main, route) {
  const at = route.query.node;
  const list = attention().filter((item) => !at || item.node === at);
  const groups = [['finding.violation', 'violation'], ['finding.health', 'unhealthy'], ['nav.nodes', 'notready', 'paused', 'cordoned', 'tainted'], ['finding.note', 'note']];
  fill(main, heading(t('nav.findings'), t('findings.sub')), partView(),
    at && h('p', null, t('findings.at', { name: at }), ' ', h('a', { href: '#/findings', 'data-key': 'all findings' }, t('findings.everywhere'))),
    list.length === 0 && h('p.empty.good', null, at ? t('findings.none.at', { name: at }) : t('findings.none')),
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

const contains = (text, part) => !part || text.toLowerCase().includes(part.toLowerCase());

const matchesNode = (f) => (n) => contains(n.name, f.node) &&
  (!f.model || n.cards.some((c) => c.model === f.model)) &&
  (!f.pod && !f.namespace || n.cards.some((c) => c.holders.some((x) => !x.hidden && (!f.namespace || x.namespace === f.namespace) && contains(x.namespace + '/' + x.pod, f.pod)))) &&
  (!f.state || (nodeStates[f.state]?.(n) ?? true));

// filtered reports whether the address has a filter.
const filtered = (route) => Object.entries(route.query).some(([key, value]) => value && key !== 'sort');

// filters draws the controls: fields for parts of names, and lists to choose from. A
// change goes into the address, where links to it can be taken from.
function filters(route, fields, lists, orders, shown) {
  const change = (key) => (event) => route.filter({ [key]: event.target.value });
  const labelled = (key, control) => h('label', null, h('span', null, t('filter.' + key)), control);
  const select = (key, options, none) => labelled(key, h('select', { 'data-key': 'filter ' + key, change: change(key) }, h('option', { value: '' }, none),
    options.map(([value, text]) => h('option', { value, selected: route.query[key] === value }, text))));
  return h('form.filters', { 'aria-label': t('filter.label'), submit: (e) => e.preventDefault() },
    fields.map((key, i) => labelled(key, h('input', {
      type: 'search', placeholder: t('filter.hint'), value: route.query[key] ?? '', 'data-key': 'filter ' + key, id: i === 0 && 'filter', input: change(key), spellcheck: 'false',
    }))),
    lists.map(([key, options, text = (x) => x]) => select(key, options.map((o) => [o, text(o)]), t('filter.any'))),
    select('sort', Object.entries(orders).flatMap(([key, { title }]) => [[key, title + ' ↑'], ['-' + key, title + ' ↓']]), t('filter.unsorted')),
    h('button', { type: 'button', 'data-key': 'filter clear', disabled: !Object.values(route.query).some(Boolean), click: () => route.filter(null) }, t('filter.clear')),
    h('output', null, shown));
}

// sorted returns the list in the order that the address names, by what an order takes of
// an item. What has nothing there comes last.
function sorted(route, orders, list) {
  const sort = route.query.sort ?? '';
  const by = orders[sort.replace('-', '')]?.by;
  if (!by) return list;
  const way = sort.startsWith('-') ? -1 : 1;
  const compare = (a, b) => (a === undefined) - (b === undefined) || (a === undefined ? 0 : way * (typeof a === 'string' ? natural(a, b) : a - b));
  return list.map((item) => [by(item), item]).sort(([a], [b]) => compare(a, b)).map(([, item]) => item);
}

// heads are those of a table whose columns can be sorted by: a click sorts, another one
// the other way round.
const heads = (route, orders, columns) => columns.map((key) => {
  if (!orders[key]) return key;
  const sort = route.query.sort ?? '';
  const is = sort === key ? 'ascending' : sort === '-' + key ? 'descending' : null;
  return { sort: is, title: orders[key].title, head: h('button.sort', { type: 'button', 'data-key': 'sort ' + key, title: t('filter.sort'), click: () => route.filter({ sort: is === 'ascending' ? '-' + key : key }) },
    orders[key].title, h('span', { 'aria-hidden': 'true' }, { ascending: ' ↑', descending: ' ↓' }[is] ?? ' ↕')) };
});

// Nodes

// eager is up to how many nodes everything is drawn at once; with more, the
// drawing of a node is there while it is near the window.
const eager = 40;
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) target.show?.(); else target.hide?.();
  }
}, { rootMargin: '800px 0px' });

const nodeOrders = () => ({
  node: { title: t('filter.node'), by: (n) => n.name },
  compute: { title: t('card.compute'), by: (n) => { const sum = used(n); return sum.allCompute ? sum.compute / sum.allCompute : undefined; } },
  memory: { title: t('card.memory'), by: (n) => { const sum = used(n); return sum.allMemory ? sum.memory / sum.allMemory : undefined; } },
  idle: { title: t('state.idle'), by: (n) => n.cards.filter((c) => c.healthy && idle(c)).length },
});

export function nodesPage(main, route) {
  const all = withCards();
  const orders = nodeOrders();
  const list = sorted(route, orders, all.filter(matchesNode(route.query)));
  const panels = list.map((node) => kept(node, `panel ${list.length > eager} ${findingsKey(node)}`, () => nodePanel(node, list.length > eager)));
  const grid = main.querySelector('.servers');
  const filter = filters(route, ['node', 'pod'], [['model', models()], ['namespace', namespaces()], ['state', Object.keys(nodeStates), (s) => t('state.' + s)]], orders,
    t('filter.shown', { n: count(list.length), all: count(all.length) }));
  if (grid && main.dataset.page === 'nodes') {
    fill(main.querySelector('.filter-bar'), filter);
    update(grid, panels);
  } else {
    fill(main, heading(t('nav.nodes'), null, legend()), h('div.filter-bar', null, filter), h('div.servers', null, panels));
  }
  main.querySelector('.servers').dataset.empty = list.length ? '' : t(all.length ? 'none.nodes' : 'none.cards');
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
  const states = [
    node.problem && ['bad', 'node.problem'], node.missingDevice && ['bad', 'node.nodevice'], !node.ready && ['bad', 'node.notready'],
    !node.schedulable && ['warn', 'node.cordoned'], node.ready && node.schedulable && node.taint && ['warn', 'node.tainted'], node.paused && ['warn', 'node.paused'],
  ].filter(Boolean);
  if (!states.length) states.push(['good', 'node.ready']);
  const violations = findingsOf(node.name).filter((f) => !f.note).length;
  return [states.map(([look, text], i) => [i > 0 && ' ', h('span.pill', { class: look, title: text === 'node.tainted' && node.taint }, t(text))]), violations > 0 && [' ', h('a.pill.bad', { href: '#/findings?node=' + encodeURIComponent(node.name), 'data-key': 'violations ' + node.name }, '‼ ', t('stat.violations', { n: violations }))]];
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
  const why = node.problem || node.missingDevice || node.paused;
  if (why) return h('p.trouble', null, why);
  const hidden = node.hiddenUnaccounted ?? 0;
  if (!node.unaccounted?.length && !hidden) return null;
  return h('p.trouble', null, t('node.unaccounted'), ' ', (node.unaccounted ?? []).map((pod, i) => [i > 0 && t('list.item'), podName(pod)]),
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

// table draws a table. A head is a text, or one that heads makes. On narrow screens
// each row is a block in which the cells have their heads before them.
export function table(columns, body) {
  const titles = columns.map((column) => column.title ?? column);
  const list = [body].flat(3).filter(Boolean);
  for (const row of list) {
    let at = 0;
    for (const cell of row.children) { cell.dataset.head = titles[at] ?? ''; at += cell.colSpan; }
  }
  return h('div.scroll', { tabindex: 0, role: 'group', 'aria-label': titles.filter(Boolean).join(', ') },
    h('table', null, h('thead', null, h('tr', null, columns.map((column) => h('th', { scope: 'col', 'aria-sort': column.sort }, column.head ?? column)))), h('tbody', null, list)));
}

const sum = (p, amount) => p.cards.reduce((n, { holder }) => n + holder[amount], 0);

const podOrders = () => ({
  pod: { title: t('pod'), by: (p) => p.key }, state: { title: t('pod.state'), by: (p) => t(p.pending ? 'podstate.pending' : 'podstate.placed') },
  node: { title: t('pod.node'), by: (p) => p.node?.name }, age: { title: t('pod.age'), by: (p) => (p.created ? Date.now() - new Date(p.created) : undefined) },
  compute: { title: t('card.compute'), by: (p) => (p.cards ? sum(p, 'computePercent') : undefined) },
  memory: { title: t('card.memory'), by: (p) => (p.cards ? sum(p, 'memoryMiB') : undefined) },
});

const waitingPods = () => store.pending.map((p) => ({ key: p.namespace + '/' + p.name, namespace: p.namespace, created: p.created, pending: p }));

export function podsPage(main, route) {
  const f = route.query;
  const orders = podOrders();
  const held = [...pods().values()];
  const waiting = waitingPods();
  const list = sorted(route, orders, [...waiting, ...held].filter((p) => contains(p.key, f.pod) && (!f.namespace || p.namespace === f.namespace) &&
    (!f.node || p.node && contains(p.node.name, f.node)) && (!f.model || p.cards?.some(({ card }) => card.model === f.model)) &&
    (!f.state || (f.state === 'pending') === Boolean(p.pending))));
  const draw = () => podsPage(main, route);
  fill(main, heading(t('nav.pods'), t('pods.sub')), partView(),
    (held.length > 0 || waiting.length > 0 || filtered(route)) && filters(route, ['pod', 'node'], [['model', models()], ['namespace', namespaces()], ['state', podStates, (s) => t('podstate.' + s)]], orders,
      t('filter.pods', { n: count(list.length), all: count(held.length + waiting.length) })),
    list.length === 0 ? h('p.empty', null, t(filtered(route) ? 'none.pods' : 'none.pods.atall'))
      : table(heads(route, orders, ['pod', 'state', 'node', t('pod.cards'), 'compute', 'memory', t('card.qos'), 'age']), rows(list, (p) => (p.pending ? pendingRow(p.pending) : podRow(p)), draw)));
}

const ageCell = (created) => h('td.nowrap', null, created ? age(created) : '–');

function pendingRow(p) {
  return h('tr', null, h('td', null, podName(p.namespace + '/' + p.name)), h('td', null, h('span.pill.warn', null, t('podstate.pending'))),
    h('td', null, '–'), h('td', { colspan: 4 }, h('span.dim', null, wants(p))), ageCell(p.created));
}

function podRow(p) {
  return h('tr', null, h('td', null, podName(p.key)), h('td', null, h('span.pill.good', null, t('podstate.placed'))),
    h('td.nowrap', null, h('a', { href: nodeLink(p.node.name), 'data-key': 'podnode ' + p.key }, p.node.name)),
    h('td', null, p.cards.map(({ card }, i) => [i > 0 && ' ', h('a.chip', { href: cardLink(p.node.name, card.index), 'data-key': `podcard ${p.key} ${card.index}` }, card.index)])),
    h('td.num', null, sum(p, 'computePercent') + '%'), h('td.num', null, memory(sum(p, 'memoryMiB'))), h('td', null, qosTag(p.cards[0].holder)), ageCell(p.created));
}

export const qosTag = (holder) => h('span.tag', null, h('i.key', { class: 'q-' + kindOf(holder) }), t('qos.' + kindOf(holder)), holder.class === 'offline' ? ' · ' + t('qos.offline') : '');

// Pending pods

const pendingOrders = () => ({
  pod: { title: t('pod'), by: (p) => p.key }, waiting: { title: t('pod.waiting'), by: (p) => (p.created ? Date.now() - new Date(p.created) : undefined) },
  reason: { title: t('pod.reason'), by: (p) => t('code.' + p.pending.code) },
});

export function pendingPage(main, route) {
  const { reason: code = '', namespace, pod } = route.query;
  const orders = pendingOrders();
  const byReason = Map.groupBy(store.pending, (p) => p.code);
  const groups = [...byReason].sort((a, b) => b[1].length - a[1].length);
  const oldest = waitingPods().sort((a, b) => (a.created ?? '').localeCompare(b.created ?? ''));
  const list = sorted(route, orders, oldest.filter((p) => (!code || p.pending.code === code) && (!namespace || p.namespace === namespace) && contains(p.key, pod)));
  const hidden = store.cluster.hiddenPending ?? 0;
  const chip = (to, text) => h('button.chip', { type: 'button', 'aria-pressed': code === to ? 'true' : 'false', 'data-key': 'chip ' + to, click: () => route.filter({ reason: to }) }, text);
  const draw = () => pendingPage(main, route);
  fill(main, heading(t('stat.pending'), t('pending.sub')), partView(),
    groups.length > 0 && h('div.chips', { role: 'group', 'aria-label': t('pod.reason') }, chip('', `${t('filter.any')} · ${count(store.pending.length)}`), groups.map(([to, of]) => chip(to, `${t('code.' + to)} · ${count(of.length)}`))),
    groups.length > 0 && filters(route, ['pod'], [['namespace', [...new Set(store.pending.map((p) => p.namespace))].sort(natural)]], orders, t('filter.pods', { n: count(list.length), all: count(store.pending.length) })),
    hidden > 0 && h('p.dim', null, t('pending.hidden', { n: hidden })),
    list.length === 0 ? emptyPending(hidden) : table(heads(route, orders, ['pod', t('pod.wants'), 'waiting', 'reason']),
      rows(list, ({ key, pending: p }) => h('tr', null, h('td', null, podName(key)), h('td', null, wants(p)), h('td.nowrap', null, p.created ? ago(p.created) : '–'),
        h('td.reason', null, h('b', null, t('code.' + p.code)), h('div.dim', null, reason(p)))), draw)));
}

function emptyPending(hidden) {
  if (store.pending.length) return h('p.empty', null, t('none.pending'));
  return h('p.empty', { class: hidden ? '' : 'good' }, t(hidden ? 'pending.none.seen' : 'pending.none'));
}
