// Sentences made of numbers. In English the server's own are shown, which are
// those of the commands; in Chinese they are put together here.

import codes from './strings/codes.js';
import { t, has, lang, memory } from './i18n.js';

export const kindOf = (holder) =>
  holder.exclusive ? 'exclusive' : holder.class === 'online' ? 'online' : holder.qos || 'best-effort';

export const holderName = (holder) => (holder.hidden ? t('pod.hidden') : holder.namespace + '/' + holder.pod);

export function amounts(compute, mib, exclusive) {
  if (exclusive) return t('pod.whole');
  if (!compute && !mib) return t('pod.seat');
  return t('pod.share', { compute, memory: memory(mib) });
}

// listed joins the parts of a list.
export function listed(parts) {
  if (parts.length < 2) return parts.join('');
  return parts.slice(0, -1).join(t('list.comma')) + t('list.and') + parts.at(-1);
}

// wants says what a pod asks for.
export function wants(pod) {
  if (!pod.request?.length) return pod.wants ?? '';
  const parts = pod.request.map((r) => {
    if (r.exclusive) return t('wants.whole', { n: r.cards });
    const amount = r.memoryPercent ? t('wants.ratio', { n: r.memoryPercent }) : memory(r.memoryMiB ?? 0);
    return t(r.cards > 1 ? 'wants.slices' : 'wants.slice', { n: r.cards, compute: r.computePercent, memory: amount });
  });
  let text = parts.length > 3 ? t('wants.whole', { n: pod.request.reduce((n, r) => n + r.cards, 0) }) : listed(parts);
  if (pod.qos && pod.qos !== 'best-effort') text += t('list.comma') + t('qos.' + pod.qos);
  if (pod.class) text += t('list.comma') + t('qos.' + pod.class);
  return text;
}

// sentence is a Chinese one with the numbers of a refusal, or nothing where the
// code has none.
function sentence(kind, r) {
  const one = `zh.${kind}.${r.code}.one`;
  const key = r.want <= 1 && has(one) ? one : `zh.${kind}.${r.code}`;
  const amount = (n) => ({ MiB: memory(n), '%': n + '%' })[codes[r.code]?.unit] ?? n;
  return has(key) ? t(key, { want: amount(r.want), have: amount(r.have), missing: amount(r.want - r.have) }) : '';
}

// reason says why a pod waits.
export function reason(pending) {
  if (lang() === 'en' || !pending.reasons) return pending.message;
  const all = pending.reasons.reduce((n, r) => n + r.nodes, 0);
  return t('zh.summary', { all, parts: pending.reasons.map((r) => `${r.nodes} 个${sentence('summary', r) || t('code.' + r.code)}`).join('，') });
}

// refusal says why a node does not take a pod.
export function refusal(r) {
  if (lang() === 'en') return r.message;
  const rest = Object.entries(r.cards).filter(([code]) => code !== r.code && code !== 'TooFewCards');
  const tally = rest.map(([code, n]) => `${n} 张：${t('code.' + code)}`).join('，');
  const first = (r.code === 'NodeExcluded' && t('exclusion.' + r.exclusion)) || sentence('refusal', r)
    || t('code.' + r.code) + (r.cards[r.code] > 1 ? `（${r.cards[r.code]} 张）` : '');
  return tally ? `${first}；${tally}` : first;
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
    : t('help.smaller.slice', { compute: help.computePercent, memory: memory(help.memoryMiB ?? 0) });
  return t('help.smaller', { what });
}
