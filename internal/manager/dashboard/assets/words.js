// Sentences made of numbers. In English the server's own are shown, which are
// those of the commands; in Chinese they are put together here.

import codes from './strings/codes.js';
import { h } from './dom.js';
import { t, has, lang, memory, free } from './i18n.js';

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

// runbook links to the page that says what to do.
export const runbook = (page, key) => page && h('a.runbook', { href: `${docs}${lang() === 'zh' ? 'zh/' : ''}runbooks/${page}.md`, target: '_blank', rel: 'noreferrer', 'data-key': 'runbook ' + key }, t('finding.runbook'));

export const runbookOf = (finding, key) => runbook(runbooks[finding.rule] ?? (finding.note ? null : 'audit-violation'), key);

// listed joins the parts of a list.
export function listed(parts) {
  if (parts.length < 2) return parts.join('');
  return parts.slice(0, -1).join(t('list.comma')) + t('list.and') + parts.at(-1);
}

// wants says what a pod asks for, container by container where several do.
export function wants(pod) {
  if (pod.wants && (lang() === 'en' || !pod.request?.length)) return pod.wants;
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

// sentence is a Chinese one with the numbers of a refusal, or nothing where the
// code has none.
function sentence(kind, r) {
  const plain = `zh.${kind}.${r.code}`;
  const variant = ['total', 'absent', 'idle'].find((name) => r[name] && has(`${plain}.${name}`));
  const key = [variant && `${plain}.${variant}`, plain, codes[r.code]?.unit === 'cards' && `zh.${kind}.cards`].find((name) => name && has(name));
  const amount = (n, mib) => ({ MiB: mib(n), '%': n + '%' })[codes[r.code]?.unit] ?? n;
  return key ? t(key, { want: amount(r.want, memory), have: amount(r.have, free), missing: amount(r.want - r.have, memory), absent: r.absent }) : '';
}

// reason says why a pod waits.
export function reason(pending) {
  if (lang() === 'en' || !pending.reasons) return pending.message;
  const all = pending.reasons.reduce((n, r) => n + r.nodes, 0);
  return t('zh.summary', { all, parts: pending.reasons.map((r) => t('zh.summary.nodes', { n: r.nodes, why: sentence('summary', r) || t('code.' + r.code) })).join(t('list.semicolon')) });
}

// named are the codes and exclusions whose message names what no number says.
const named = new Set(['BadInventory', 'Unaccounted', 'ModeConflict', 'NotSelected', 'NotAffine', 'Tainted']);

const numbers = (text) => text.match(/\d+/g) ?? [];

// refusal says why a node does not take a pod. Where the server's sentence has more
// numbers than the Chinese one, it is added.
export function refusal(r) {
  if (lang() === 'en') return r.message;
  const why = sentence('refusal', r) || (r.exclusion ? t('exclusion.' + r.exclusion) : t('code.' + r.code));
  // What the sentence itself says of cards is not said again.
  const covered = new Set(['TooFewCards', ...(has('zh.refusal.' + r.code) ? [r.code] : [])]);
  const tally = Object.entries(r.cards ?? {}).filter(([code]) => !covered.has(code)).map(([code, n]) => t('zh.tally', { n, why: t('code.' + code) }));
  const text = [why, ...tally].join(t('list.semicolon'));
  const said = new Set(numbers(text));
  return named.has(r.exclusion || r.code) || numbers(r.message).some((n) => !said.has(n)) ? t('zh.named', { why: text, message: r.message }) : text;
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
