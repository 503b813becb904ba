// The hint of the first run: shown while no pod uses cards, until it is dismissed.

import { h } from './dom.js';
import { keep, read, t } from './i18n.js';
import { nodes, store } from './store.js';

const commands = [
  ['first.create', 'kubectl apply -f examples/hami/sgpu-default.yaml'],
  ['first.explain', 'daybreak explain gpu-pod1'],
  ['first.status', 'daybreak status'],
];

// unused reports whether no pod holds or requests cards.
const unused = () => store.cluster.pending === 0 && nodes().every((n) => !n.unaccounted?.length && !n.hiddenUnaccounted && n.cards.every((c) => c.holders.length === 0));

let dismissed = read('first') === 'dismissed';

// firstRun draws the hint. Whether it is dismissed is kept in the browser.
export function firstRun(redraw) {
  if (dismissed || !unused()) return null;
  const close = () => { dismissed = true; keep('first', 'dismissed'); redraw(); };
  return h('section.panel.first', { 'aria-labelledby': 'first' }, h('div.panel-head', null, h('h2', { id: 'first' }, t('first.title')), h('button', { type: 'button', 'data-key': 'first', click: close }, t('first.close'))),
    h('p.dim', null, t('first.sub')), h('dl.commands', null, commands.map(([text, command]) => h('div', null, h('dt', null, t(text)), h('dd', null, h('code', null, command))))));
}
