// Sentences made of numbers. The server's own are in English, as those of the
// commands. A language that has texts named sentence.* has them put together here.

import codes from './strings/codes.js';
import { h } from './dom.js';
import { t, has, lang, memory, free } from './i18n.js';
import { store } from './store.js';

// composes reports whether sentences are put together in the page's language.
const composes = () => has('sentence.summary');

export const kindOf = (holder) =>
  holder.exclusive ? 'exclusive' : holder.class === 'online' ? 'online' : holder.qos || 'best-effort';

export const holderName = (holder) => (holder.hidden ? t('pod.hidden') : holder.namespace + '/' + holder.pod);

export function amounts(compute, mib, exclusive) {
  if (exclusive) return t('pod.whole');
  if (!compute && !mib) return t('pod.seat');
  return t('pod.share', { compute, memory: memory(mib) });
}

// runbooks has the page of docs/runbooks for a rule. All other violations share one,
// all other notes have none.
const runbooks = {
  MemoryOverbooked: 'double-booking', ComputeOverbooked: 'double-booking', SlicesOverbooked: 'double-booking', ExclusiveShared: 'double-booking',
  LockStuck: 'lock-stuck', UnhealthyInUse: 'card-unhealthy', DeviceMissing: 'agent-silent',
};

const docs = 'https://github.com/daybreak-gpu/daybreak/blob/main/docs/';

// runbook links to a page of docs/runbooks.
export const runbook = (page, key) => page && h('a.runbook', { href: `${docs}${lang() === 'zh' ? 'zh/' : ''}runbooks/${page}.md`, target: '_blank', rel: 'noreferrer', 'data-key': 'runbook ' + key }, t('finding.runbook'));

export const runbookOf = (finding, key) => runbook(runbooks[finding.rule] ?? (finding.note ? null : 'audit-violation'), key);

// listed joins the parts of a list.
export function listed(parts) {
  if (parts.length < 2) return parts.join('');
  return parts.slice(0, -1).join(t('list.item')) + t('list.and') + parts.at(-1);
}

// wants says what a pod asks for, container by container where several do.
export function wants(pod) {
  if (pod.wants && (!composes() || !pod.request?.length)) return pod.wants;
  const asking = pod.request ?? [];
  const parts = asking.map((r) => {
    const amount = r.memoryPercent ? r.memoryPercent + '%' : memory(r.memoryMiB ?? 0);
    const text = r.exclusive ? t('wants.whole', { n: r.cards }) : t(r.cards > 1 ? 'wants.slices' : 'wants.slice', { n: r.cards, compute: r.computePercent, memory: amount });
    return asking.length > 1 ? t('wants.container', { name: r.container, text }) : text;
  });
  let text = parts.length > 3 ? t('wants.many', { containers: parts.length, n: asking.reduce((n, r) => n + r.cards, 0) }) : parts.join(t('list.semicolon'));
  if (pod.qos && pod.qos !== 'best-effort') text += t('list.comma') + t('qos.' + pod.qos);
  if (pod.class) text += t('list.comma') + t('qos.' + pod.class);
  return text;
}

// sentence returns the sentence with the numbers of a refusal, or nothing where the
// code has none.
function sentence(kind, r) {
  const plain = `sentence.${kind}.${r.code}`;
  const variant = ['total', 'absent', 'idle', 'paused'].find((name) => r[name] && has(`${plain}.${name}`));
  const key = [variant && `${plain}.${variant}`, plain, codes[r.code]?.unit === 'cards' && `sentence.${kind}.cards`].find((name) => name && has(name));
  const amount = (n, mib) => ({ MiB: mib(n), '%': n + '%' })[codes[r.code]?.unit] ?? n;
  return key ? t(key, { want: amount(r.want, memory), have: amount(r.have, free), missing: amount(r.want - r.have, memory), absent: r.absent }) : '';
}

// reason says why a pod waits.
export function reason(pending) {
  if (!composes() || !pending.reasons) return pending.message;
  const all = pending.reasons.reduce((n, r) => n + r.nodes, 0);
  return t('sentence.summary', { all, parts: pending.reasons.map((r) => t('sentence.summary.nodes', { n: r.nodes, why: sentence('summary', r) || t('code.' + r.code) })).join(t('list.semicolon')) });
}

// named are the codes and exclusions whose message names what no number says.
const named = new Set(['BadInventory', 'QuotaExceeded', 'Unaccounted', 'ModeConflict', 'NotSelected', 'NotAffine', 'Tainted']);

const numbers = (text) => text.match(/\d+/g) ?? [];

// paused returns why the node that rejects the pod does not serve its cards.
const paused = (r) => (r.code === 'Unhealthy' ? store.nodes.get(r.node)?.paused : null);

// rejection is the title of a refusal.
export const rejection = (r) => t(paused(r) ? 'node.paused' : 'code.' + r.code);

// refusal returns why a node rejects a pod. Where the server's sentence has more
// numbers than the one that is put together, it is added.
export function refusal(r) {
  if (!composes()) return r.message;
  if (paused(r)) return t('sentence.named', { why: t('finding.paused', { name: r.node }), message: paused(r) });
  const why = sentence('refusal', r) || (r.exclusion ? t('exclusion.' + r.exclusion) : t('code.' + r.code));
  // What the sentence itself says of cards is not repeated.
  const covered = new Set(['TooFewCards', ...(has('sentence.refusal.' + r.code) ? [r.code] : [])]);
  const tally = Object.entries(r.cards ?? {}).filter(([code]) => !covered.has(code)).map(([code, n]) => t('sentence.tally.' + code, { n }));
  const text = [why, ...tally].join(t('list.semicolon'));
  const said = new Set(numbers(text));
  return named.has(r.exclusion || r.code) || numbers(r.message).some((n) => !said.has(n)) ? t('sentence.named', { why: text, message: r.message }) : text;
}

// freed says what has to become free.
export function freed(help) {
  const emptied = help.cards.filter((c) => c.emptied).map((c) => c.index);
  const amounts = help.cards.filter((c) => !c.emptied).map((c) => {
    const parts = [];
    if (c.computePercent) parts.push(t('help.freed.compute', { n: c.computePercent }));
    if (c.memoryMiB) parts.push(memory(c.memoryMiB));
    if (c.shares) parts.push(t('help.freed.shares'));
    return t('help.freed.card', { amounts: listed(parts), card: c.index });
  });
  if (emptied.length) amounts.push(t('help.freed.emptied', { n: emptied.length, cards: listed(emptied) }));
  return t('help.freed', { what: listed(amounts), node: help.node });
}

export function smaller(help) {
  const what = help.cards > 1 || help.computePercent === 100
    ? t('help.smaller.cards', { n: help.cards })
    : t('help.smaller.slice', { compute: help.computePercent, memory: free(help.memoryMiB ?? 0) });
  return t('help.smaller', { what });
}
