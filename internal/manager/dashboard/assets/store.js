// What is known of the cluster, and the stream that keeps it true.

export const store = {
  ready: false, revision: 0, viewer: null, cluster: null,
  nodes: new Map(), names: [], pending: [], findings: [],
};

let memo = new Map();

// once remembers what is worked out of the present state.
function once(key, work) {
  if (!memo.has(key)) memo.set(key, work());
  return memo.get(key);
}

// apply takes in a state, or what changed of it. A node that changed is a new
// object, so that whatever was drawn of the old one can be told apart.
export function apply(state) {
  memo = new Map();
  if (state.full) store.nodes = new Map();
  for (const node of state.nodes ?? []) store.nodes.set(node.name, node);
  for (const name of state.gone ?? []) store.nodes.delete(name);
  if (state.full || state.gone || state.nodes?.some((n) => !store.names.includes(n.name))) {
    store.names = [...store.nodes.keys()].sort(natural);
  }
  for (const key of ['viewer', 'cluster', 'pending', 'findings']) if (state[key]) store[key] = state[key];
  store.revision = state.revision;
  store.ready = true;
}

const collator = new Intl.Collator('en', { numeric: true });

export const natural = (a, b) => collator.compare(a, b);

export const nodes = () => store.names.map((name) => store.nodes.get(name));

// withCards are the nodes that have something to show.
export const withCards = () => once('withCards', () => nodes().filter((n) => n.cards.length || n.problem));

// pods returns every pod that holds cards, with the cards it holds.
export function pods() {
  return once('pods', () => {
    const all = new Map();
    for (const node of nodes()) {
      for (const card of node.cards) {
        for (const holder of card.holders) {
          if (holder.hidden) continue;
          const key = holder.namespace + '/' + holder.pod;
          if (!all.has(key)) all.set(key, { key, namespace: holder.namespace, name: holder.pod, node, cards: [], qos: holder.qos, class: holder.class });
          all.get(key).cards.push({ card, holder });
        }
      }
    }
    return all;
  });
}

export const models = () => once('models', () => Object.keys(store.cluster?.models ?? {}).sort(natural));

// namespaces lists those with pods that may be seen.
export const namespaces = () => once('namespaces', () => {
  const all = new Set(store.pending.map((p) => p.namespace));
  for (const pod of pods().values()) all.add(pod.namespace);
  return [...all].sort(natural);
});

export const findingsOf = (node) => once('findings', () => Map.groupBy(store.findings, (f) => f.node)).get(node) ?? [];

// broken tells whether a rule is broken on the card.
export const broken = (node, index) => findingsOf(node).some((f) => !f.note && f.index === index);

export const takesPods = (node) => node.ready && node.schedulable && !node.problem && !node.unaccounted?.length && !node.hiddenUnaccounted;

export const idle = (card) => card.slotsFree === card.slots;

// used returns what is booked on the healthy cards of a node.
export function used(node) {
  const sum = { compute: 0, memory: 0, allCompute: 0, allMemory: 0 };
  for (const card of node.cards) {
    if (!card.healthy) continue;
    sum.allCompute += 100;
    sum.allMemory += card.memoryMiB;
    sum.compute += 100 - card.computeFreePercent;
    sum.memory += card.memoryMiB - card.memoryFreeMiB;
  }
  return sum;
}

// attention lists what is wrong, the worst first.
export const attention = () => once('attention', () => {
  const list = store.findings.filter((f) => !f.note).map((finding) => ({ kind: 'violation', finding, node: finding.node }));
  for (const node of nodes()) {
    if (!node.cards.length && !node.problem) continue;
    if (!node.ready) list.push({ kind: 'notready', node: node.name });
    for (const card of node.cards) if (!card.healthy) list.push({ kind: 'unhealthy', node: node.name, card });
    if (node.ready && !node.schedulable) list.push({ kind: 'cordoned', node: node.name });
  }
  // A pod on an unhealthy card is told with the card.
  for (const finding of store.findings) if (finding.note) list.push({ kind: 'note', finding, node: finding.node });
  return list;
});

// hiddenFor is how long a page that nobody sees stays connected, in ms: browsers
// open few connections to one server, and pages in the background would use them
// up.
const hiddenFor = 10000;

// follow keeps the store up to date and tells of changes, and of whether it can.
export function follow(changed, connected) {
  let source = null;
  let leave = 0;
  const open = () => {
    source = new EventSource('api/v1/stream');
    source.addEventListener('open', () => connected('on'));
    source.addEventListener('state', (event) => {
      apply(JSON.parse(event.data));
      connected('on');
      changed();
    });
    source.addEventListener('error', lost);
  };
  const lost = async () => {
    connected('off');
    if (source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
    source = null;
    try {
      // A login that has ended shows as a refusal: the form is at the page itself.
      const answer = await fetch('api/v1/state', { method: 'HEAD' });
      if (answer.status === 401 || answer.status === 403) { location.reload(); return; }
    } catch { /* the server is away */ }
    setTimeout(() => { if (!source && !document.hidden) open(); }, 2000);
  };
  document.addEventListener('visibilitychange', () => {
    clearTimeout(leave);
    if (!document.hidden) { if (!source) open(); return; }
    leave = setTimeout(() => { source?.close(); source = null; }, hiddenFor);
  });
  open();
}

// fetchPod asks for a pod's own view; null is a pod that is not there.
export async function fetchPod(namespace, name) {
  const answer = await fetch(`api/v1/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}
