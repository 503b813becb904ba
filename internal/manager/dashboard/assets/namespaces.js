// The page of namespaces: what they use, and their budgets.

import { fill, h } from './dom.js';
import { count, memory, percent, t } from './i18n.js';
import { natural, store } from './store.js';
import { heading, partView, section, table } from './views.js';

const amounts = { '%': (n) => count(n) + '%', MiB: memory, cards: count };

// nearlyUsed is from which part of a budget on its bar stands out.
const nearlyUsed = 0.9;

// bar draws how much of a budget is used.
function bar(label, used, hard, amount) {
  const text = t('namespaces.of', { used: amount(used), all: amount(hard) });
  const part = percent(used, hard);
  const over = used > hard;
  return h('div.budget', null, h('span', null, text), over ? h('span.pill.bad', null, t('namespaces.over')) : h('span.num', null, part + '%'),
    h('div.track', { class: over ? 'over' : used >= nearlyUsed * hard ? 'full' : '', role: 'meter', 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': over ? 100 : part, 'aria-valuetext': text },
      h('i', { set: { width: (over ? 100 : part) + '%' } })));
}

const pods = (n, page, name) => (n ? h('a', { href: `#/${page}?namespace=${encodeURIComponent(name)}`, 'data-key': `${page} of ${name}` }, count(n)) : '0');

// columns are the amounts of a namespace.
const columns = [['computePercent', '%', 'card.compute'], ['memoryMiB', 'MiB', 'card.memory'], ['cards', 'cards', 'namespaces.cards']];

const budget = (n, [key, unit, label]) => h('td', null, n.budget[key] === null
  ? [h('div', null, amounts[unit](n[key])), h('div.dim', null, t('namespaces.nobudget'))]
  : bar(`${n.name}, ${t(label)}`, n.used[key], n.budget[key], amounts[unit]));

export function namespacesPage(main) {
  const list = [...store.namespaces].sort((a, b) => natural(a.name, b.name));
  const titles = [t('filter.namespace'), t('nav.pods'), t('nav.pending'), ...columns.map(([, , label]) => t(label))];
  const quotas = list.flatMap((n) => (n.quotas ?? []).map((q) => [n, q]));
  const warnings = list.flatMap((n) => (n.warnings ?? []).map((w) => [n, w]));
  fill(main, heading(t('nav.namespaces'), t('namespaces.sub')), partView(),
    warnings.length > 0 && section(`${t('quotas.warnings')} · ${count(warnings.length)}`, null, h('ul.findings', null, warnings.map(([n, w]) => h('li.warn', null, h('b', null, `${n.name}${t('list.colon')}${t('quota.' + w.reason)}`), h('p', null, w.message))))),
    list.length === 0 ? h('p.empty', null, t('namespaces.none')) : table(titles, list.map((n) => h('tr', null,
      h('td', null, n.name), h('td.num', null, pods(n.pods, 'pods', n.name)), h('td.num', null, pods(n.waiting, 'pending', n.name)), columns.map((column) => budget(n, column))))),
    quotas.length > 0 && section(t('quotas.title'), t('quotas.sub'), table([t('filter.namespace'), t('quotas.name'), t('quotas.limit'), t('quotas.used'), t('quotas.enforced')], quotas.map(([n, q]) => h('tr', null,
      h('td', null, n.name), h('td', null, q.name), h('td.limit', null, q.resource), h('td', null, bar(`${n.name} ${q.name} ${q.resource}`, q.used, q.hard, amounts[q.unit])),
      h('td', null, h('span.pill', { class: q.enforced ? 'good' : 'warn' }, t(q.enforced ? 'quotas.yes' : 'quotas.no'))))))));
}
