// The pages of one thing: a node, a card, a pod.

import codes from './strings/codes.js';
import { fill, h } from './dom.js';
import { age, ago, count, free, memory, moment, t } from './i18n.js';
import { fetchPod, findingsOf, natural, pods, room, store } from './store.js';
import { cardLink, cardState, cardTroubles, chassis, computeBar, legend, memoryBar, nodeLink, nodeMeters } from './draw.js';
import { amounts, freed, holderName, listed, refusal, rejection, smaller, wants } from './words.js';
import { attentionItem, findingItem, nodeFacts, nodeState, nodeTroubles, partView, podName, qosTag, section, table } from './views.js';

const crumbs = (...parts) => h('nav.crumbs', { 'aria-label': t('back') }, parts.map(([text, href], i) => [i > 0 && h('span', { 'aria-hidden': 'true' }, '/'), href ? h('a', { href, 'data-key': 'crumb ' + href }, text) : text]));

const missing = (main, text, back, href, why) => fill(main, crumbs([back, href]), h('h1', null, text), why && h('p', null, why));

const facts = (...pairs) => h('dl.facts', null, pairs.map(([term, ...value]) => h('div', null, h('dt', null, term), h('dd', null, ...value))));

const plain = (value) => (value === null || value === undefined || value === '' ? t('unknown') : value);

// Node

export function nodePage(main, { name }) {
  const node = store.nodes.get(name);
  if (!node) { missing(main, t('gone.node', { name }), t('nav.nodes'), '#/nodes'); return; }
  const here = [...pods().values()].filter((p) => p.node === node);
  const found = findingsOf(name);
  const sick = node.cards.filter((c) => !c.healthy).map((card) => ({ kind: 'unhealthy', node: name, card }));
  fill(main, crumbs([t('nav.nodes'), '#/nodes'], [name]),
    h('div.heading', null, h('div', null, h('h1', null, name, ' ', nodeState(node)), h('p.dim', null, node.cards.length ? nodeFacts(node, true) : t('node.nocards'))), node.cards.length > 0 && nodeMeters(node)),
    nodeTroubles(node), node.taint && h('p', null, t('finding.tainted', { name }), ' ', h('code', null, node.taint)), partView(),
    (found.length > 0 || sick.length > 0) && section(t('node.findings'), null, h('ul.findings', null, sick.map(attentionItem), found.map(findingItem))),
    node.cards.length > 0 && h('section.panel', null, h('div.panel-head', null, h('div', null, h('h2', null, t('node.topology')), h('p.dim', null, t('node.topology.sub'))), legend()), chassis(node, { large: true })),
    node.cards.length > 0 && section(t('pod.cards'), null, table([t('pod.card'), t('card.model'), t('card.zone'), t('card.numa'), t('card.health'), t('card.qos'), t('card.slots'), t('card.compute'), t('card.memory')],
      node.cards.map((c) => h('tr', null,
        h('td', null, h('a', { href: cardLink(name, c.index), 'data-key': 'row ' + c.index }, t('card', { n: c.index }))), h('td', null, plain(c.model)), h('td', null, c.zone ?? '–'), h('td', null, c.numa ?? '–'),
        h('td', null, c.healthy ? t('card.healthy') : h('span.pill.bad', null, t('card.unhealthy'))), h('td.nowrap', null, c.qos || '–'), h('td.num', null, t('card.slots.of', { n: c.slots - c.slotsFree, all: c.slots })),
        h('td.num', null, t('card.free', { amount: room(c).computePercent + '%' })), h('td.num', null, t('card.free', { amount: free(room(c).memoryMiB) })))))),
    section(t('node.pods'), null, here.length === 0 ? h('p.empty', null, t('node.pods.none')) : table([t('pod'), t('pod.cards'), t('card.qos')],
      here.map((p) => h('tr', null, h('td', null, podName(p.key)), h('td', null, p.cards.map(({ card, holder }) => h('div', null, h('a', { href: cardLink(name, card.index), 'data-key': `p ${p.key} ${card.index}` }, t('card', { n: card.index })), ' ', h('span.dim', null, amounts(holder.computePercent, holder.memoryMiB, holder.exclusive))))),
        h('td', null, qosTag(p.cards[0].holder)))))));
}

// Card

export function cardPage(main, { name, index }) {
  const node = store.nodes.get(name);
  const card = node?.cards.find((c) => c.index === Number(index));
  if (!card) { missing(main, t('gone.card', { name, n: index }), t('nav.nodes'), '#/nodes'); return; }
  const linked = node.links.filter((pair) => pair.includes(card.index)).map((pair) => pair.find((i) => i !== card.index));
  const found = findingsOf(name).filter((f) => f.index === card.index);
  const states = cardState(node, card).states.join(' ');
  const holders = card.holders.toSorted((a, b) => natural(holderName(a), holderName(b)));
  fill(main, crumbs([t('nav.nodes'), '#/nodes'], [name, nodeLink(name)], [t('card', { n: card.index })]),
    h('div.heading', null, h('div', null, h('h1', null, t('card.of', { n: card.index, node: name }), ' ', card.healthy ? h('span.pill.good', null, t('card.healthy')) : h('span.pill.bad', null, t('card.unhealthy'))),
      cardTroubles(node, card).map((text) => h('p.bad', null, text))), legend()),
    partView(), found.length > 0 && section(t('node.findings'), null, h('ul.findings', null, found.map(findingItem))),
    h('section.panel', null, h('h2', null, t('card.memory'), ' ', h('span.dim', null, t('card.free', { amount: free(room(card).memoryMiB) }), ' / ', free(card.memoryMiB))), h('div.big', { class: states }, memoryBar(node, card, true)),
      h('h2', null, t('card.compute'), ' ', h('span.dim', null, t('card.free', { amount: room(card).computePercent + '%' }))), h('div.big.thin', { class: states }, computeBar(card)),
      card.exclusive && h('p.dim', null, t('card.alone'))),
    section(t('card.onit'), null, card.holders.length + (card.foreign ? 1 : 0) === 0 ? h('p.empty', null, t('card.empty')) : table([t('pod'), t('card.compute'), t('card.memory'), t('card.qos'), t('pod.containers')],
      [holders.map((x) => h('tr', null, h('td', null, x.hidden ? h('span.dim', null, holderName(x)) : podName(x.namespace + '/' + x.pod)), h('td.num', null, x.computePercent + '%'), h('td.num', null, memory(x.memoryMiB)),
        h('td', null, qosTag(x)), h('td', null, (x.containers ?? []).map((c) => h('div', null, c.name, ' ', h('span.dim', null, amounts(c.computePercent, c.memoryMiB), c.init ? ` (${t('pod.init')})` : '')))))),
      card.foreign && h('tr', null, h('td.dim', null, t('card.foreign')), h('td.num', null, card.foreign.computePercent + '%'), h('td.num', null, memory(card.foreign.memoryMiB)), h('td'), h('td'))])),
    h('div.columns.even', null,
      section(t('card', { n: card.index }), null, facts(
        [t('card.uuid'), h('code', null, card.uuid || t('card.uuid.none'))], [t('card.model'), plain(card.model)], [t('card.zone'), card.zone ?? '–'], [t('card.numa'), card.numa ?? '–'], [t('card.switch'), card.switch ? h('code', null, card.switch) : '–'],
        [t('card.links'), linked.length ? linked.map((i, k) => [k > 0 && ' ', h('a.chip', { href: cardLink(name, i), 'data-key': 'linked ' + i }, i)]) : t('card.links.none')],
        [t('card.slots'), t('card.slots.of', { n: card.slots - card.slotsFree, all: card.slots })], [t('card.qos'), card.qos || t('qos.none')])),
      section(t('node.topology'), null, chassis(node, { highlight: card.index }))));
}

// Pod

// shown is the pod whose page is open, with what the server last said of it.
let shown = { key: '', revision: -1, pod: undefined, asking: false };
// askAgain is how long to wait before the server is asked again, in ms: it computes
// the answer each time.
const askAgain = 1000;

export function podPage(main, route) {
  const key = route.namespace + '/' + route.name;
  if (shown.key !== key) shown = { key, revision: -1, pod: undefined, asking: false };
  if (shown.revision !== store.revision && !shown.asking) ask(main, route, shown);
  drawPod(main, route, shown);
}

async function ask(main, route, of) {
  of.asking = true;
  of.revision = store.revision;
  try {
    of.pod = await fetchPod(route.namespace, route.name);
    of.problem = null;
  } catch (problem) {
    of.problem = problem.message;
  }
  if (of !== shown || !route.current()) return;
  drawPod(main, route, of);
  setTimeout(() => {
    of.asking = false;
    if (of === shown && route.current() && of.revision !== store.revision) podPage(main, route);
  }, askAgain);
}

function drawPod(main, route, { key, pod, problem }) {
  const back = crumbs([t('nav.pods'), '#/pods'], [key]);
  if (problem) { fill(main, back, h('h1', null, key), h('p.trouble', { role: 'alert' }, t('gone.failed'), t('list.colon'), problem)); return; }
  if (pod === undefined) { fill(main, back, h('h1', null, key), h('p.dim', null, t('loading'))); return; }
  if (pod === null) { missing(main, t('gone.pod', { name: key }), t('nav.pods'), '#/pods', t('gone.pod.why')); return; }
  const state = { placed: 'good', pending: 'warn', inadmissible: 'bad', unaccounted: 'bad' }[pod.state] ?? '';
  const waiting = store.pending.find((p) => p.namespace === route.namespace && p.name === route.name);
  fill(main, back,
    h('div.heading', null, h('div', null, h('h1', null, h('span.dim', null, pod.namespace + '/'), pod.name, ' ', h('span.pill', { class: state }, t('pod.' + pod.state, { node: pod.node }))),
      wants(pod) && h('p', null, t('pod.wants'), ' ', h('b', null, wants(pod)), waiting?.created ? h('span.dim', null, ` · ${t('pod.waiting')} ${ago(waiting.created)}`) : ''))),
    pod.problems?.length > 0 && section(t('pod.problems'), null, pod.error && h('p', null, pod.error), h('ul', null, pod.problems.map((p) => h('li', null, p)))),
    !pod.problems?.length && pod.error && h('p.trouble', null, pod.error),
    podFacts(pod),
    pod.state === 'placed' ? placed(pod) : pod.state === 'pending' && pending(pod));
}

// podFacts says what the pod is, and which container holds or asks for what.
function podFacts(pod) {
  const since = (time) => [moment(time), ' ', h('span.dim', null, t('pod.ago', { age: age(time) }))];
  const held = (pod.containers ?? []).filter((c) => c.cards.length).map((c) => h('div', null, h('code', null, c.name), ' ', c.cards.map((x, i) => [i > 0 && t('list.item'),
    h('a', { href: cardLink(pod.node, x.index), 'data-key': `container ${c.name} ${x.index}` }, t('card', { n: x.index })), ' ', h('span.dim', null, amounts(x.computePercent, x.memoryMiB))])));
  const asked = (pod.request ?? []).map((r) => h('div', null, h('code', null, r.container), ' ', h('span.dim', null, wants({ request: [r] }))));
  const containers = held.length ? held : asked;
  const pairs = [
    pod.created && [t('pod.created'), ...since(pod.created)],
    pod.owner && [t('pod.owner'), `${pod.owner.kind} ${pod.owner.name}`],
    pod.node && [t('pod.node'), h('a', { href: nodeLink(pod.node), 'data-key': 'node' }, pod.node)],
    pod.placed && [t('pod.placedat'), ...since(pod.placed)],
    containers.length > 0 && [t('pod.containers'), containers],
  ].filter(Boolean);
  return pairs.length > 0 && section(t('pod'), null, facts(...pairs));
}

function placed(pod) {
  const held = pods().get(pod.namespace + '/' + pod.name);
  const node = store.nodes.get(pod.node);
  const why = pod.why;
  return [
    held && section(t('pod.cards'), null,
      held.cards.map(({ card, holder }) => h('div.held', null, h('a', { href: cardLink(pod.node, card.index), 'data-key': 'held ' + card.index }, t('card', { n: card.index })), h('span.dim', null, amounts(holder.computePercent, holder.memoryMiB, holder.exclusive)), h('div.big.thin', null, memoryBar(node, card))))),
    why && section(t('pod.why'), null, h('p', null, why.message), h('p.dim', null, [t('pod.why.policy', { policy: why.policy }), why.links, why.score > 0 && t('pod.why.score', why), t('pod.why.room', { n: why.nodesWithRoom })].filter(Boolean).join(' · '))),
    (pod.neighbours?.length > 0 || pod.hiddenNeighbours > 0) && section(t('pod.neighbours'), null, h('ul.plain', null,
      (pod.neighbours ?? []).map((n) => h('li', null, podName(n.pod), ' ', h('span.dim', null, t('card', { n: n.index }), t('list.comma'), amounts(n.computePercent, n.memoryMiB)))),
      pod.hiddenNeighbours > 0 && h('li.dim', null, t('pod.neighbours.hidden', { n: pod.hiddenNeighbours })))),
  ];
}

function pending(pod) {
  return [
    pod.fits && h('p.banner', null, pod.note || t('pod.fits', { node: pod.fits })),
    pod.refusals && helpSection(pod), pod.refusals && refusals(pod),
    (pod.scheduler || pod.fits) && section(t('pod.scheduler'), null, h('p', null, pod.scheduler || t('pod.scheduler.none'))),
  ];
}

function helpSection(pod) {
  const { room, smaller: less, freed: least } = pod.help ?? {};
  const item = (title, sub) => h('li', null, h('b', null, title), h('p.dim', null, sub));
  if (!room && !less && !least) return section(t('help.title'), null, h('p', null, t('help.none')));
  const names = room && listed([...room.pods, ...(pod.hiddenInTheWay ? [t('node.unaccounted.hidden', { n: pod.hiddenInTheWay })] : [])]);
  return section(t('help.title'), null, h('ul.helps', null,
    least && item(freed(least), t('help.freed.sub')), room && item(t('help.room', { pods: names, node: room.node }), t('help.room.sub')),
    less && item(smaller(less), t('help.smaller.sub', { node: less.node }))));
}

const namedNodes = 12;

// aside puts codes that say nothing of cards behind the others.
const aside = (code) => codes[code]?.aside ?? 0;

// refusals lists why nodes reject the pod, those with the same reason together.
function refusals(pod) {
  const groups = [...Map.groupBy(pod.refusals, (r) => refusal(r) + r.permanent)].map(([, list]) => list)
    .sort((a, b) => aside(a[0].code) - aside(b[0].code) || b.length - a.length);
  for (const list of groups) list.sort((a, b) => natural(a.node, b.node));
  return section(t('pod.refusals'), t('pod.refusals.sub'), h('ul.refusals', null, groups.map((list) => h('li', null,
    h('div', null, h('b', null, rejection(list[0])), h('span.num', null, t('pod.refusals.nodes', { n: count(list.length) }))),
    h('p', null, refusal(list[0]), list[0].permanent && aside(list[0].code) === 0 && !refusal(list[0]).includes('even on') ? h('span.dim', null, ` – ${t('pod.refusals.never')}`) : ''),
    h('p.dim', null, list.slice(0, namedNodes).map((r, i) => [i > 0 && t('list.item'), store.nodes.has(r.node) ? h('a', { href: nodeLink(r.node), 'data-key': 'refused ' + r.node }, r.node) : r.node]),
      list.length > namedNodes && ' ' + t('pod.refusals.more', { n: count(list.length - namedNodes) }))))));
}
