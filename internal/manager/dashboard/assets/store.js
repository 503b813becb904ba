// What is known of the cluster, and the stream that keeps it true.

export const store = {
  ready: false, revision: 0, viewer: null, cluster: null,
  nodes: new Map(), names: [], pending: [], findings: [], namespaces: [],
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
  for (const key of ['viewer', 'cluster', 'pending', 'findings', 'namespaces']) if (state[key]) store[key] = state[key];
  store.revision = state.revision;
  store.ready = true;
}

const collator = new Intl.Collator('en', { numeric: true });

export const natural = (a, b) => collator.compare(a, b);

export const nodes = () => store.names.map((name) => store.nodes.get(name));

// withCards are the nodes that have something to show.
export const withCards = () => once('withCards', () => nodes().filter((n) => n.cards.length || n.problem || n.missingDevice));

// pods returns every pod that holds cards, with the cards it holds.
export function pods() {
  return once('pods', () => {
    const all = new Map();
    for (const node of nodes()) {
      for (const card of node.cards) {
        for (const holder of card.holders) {
          if (holder.hidden) continue;
          const key = holder.namespace + '/' + holder.pod;
          if (!all.has(key)) all.set(key, { key, namespace: holder.namespace, name: holder.pod, node, cards: [], created: holder.created });
          all.get(key).cards.push({ card, holder });
        }
      }
    }
    return new Map([...all].sort(([a, { node }], [b, other]) => natural(node.name, other.node.name) || natural(a, b)));
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

// broken reports whether a rule is broken on the card, and twice whether the card
// is booked twice.
export const broken = (node, index) => findingsOf(node).some((f) => !f.note && f.index === index);
export const twice = (node, index) => findingsOf(node).some((f) => doubleBooking.has(f.rule) && f.index === index);

const doubleBooking = new Set(['MemoryOverbooked', 'ComputeOverbooked', 'SlicesOverbooked', 'ExclusiveShared']);

export const takesPods = (node) => node.ready && node.schedulable && !node.taint && !node.paused && !node.problem && !node.missingDevice
  && !node.unaccounted?.length && !node.hiddenUnaccounted;

export const idle = (card) => card.slotsFree === card.slots;

// outOfSlices reports whether a card has as many slices as it takes: whatever else is
// free of it can't be given.
export const outOfSlices = (card) => card.slots > 0 && card.slotsFree === 0 && !card.exclusive;

// room is what can still be given of a card.
export const room = (card) => card.free ?? (!card.healthy || card.exclusive || outOfSlices(card)
  ? { computePercent: 0, memoryMiB: 0 } : { computePercent: card.computeFreePercent, memoryMiB: card.memoryFreeMiB });

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

// attention lists what is wrong, the worst first, and then what should be known.
export const attention = () => once('attention', () => {
  const list = store.findings.filter((f) => !f.note).map((finding) => ({ kind: 'violation', finding, node: finding.node }));
  for (const node of withCards()) {
    if (!node.ready) list.push({ kind: 'notready', node: node.name });
    else if (node.paused) list.push({ kind: 'paused', node: node.name });
    for (const card of node.cards) if (!card.healthy) list.push({ kind: 'unhealthy', node: node.name, card });
    if (!node.schedulable) list.push({ kind: 'cordoned', node: node.name });
    else if (node.taint) list.push({ kind: 'tainted', node: node.name });
  }
  // A pod on an unhealthy card is listed with the card.
  for (const finding of store.findings) if (finding.note) list.push({ kind: 'note', finding, node: finding.node });
  return list;
});

// intended are the kinds that are no failure: an operator wanted them so, or they
// are notes.
const intended = new Set(['cordoned', 'tainted', 'note']);

export const failures = () => attention().filter((item) => !intended.has(item.kind));

// hiddenFor is how long a page that is not seen stays connected, in ms: browsers
// open few connections to one server, and pages in the background would use them
// up.
const hiddenFor = 10000;

// silence is how long the page waits for a sign of the server, in ms. Beats come at
// least every 10 seconds.
const silence = 15000;

// link is the connection to the cluster. Its state is "wait", "on" or "off", and cause
// says what does not answer, "manager" or "api", or that the manager is "behind" after
// an outage. All that is shown was up to date at the time heard, in ms, which is null
// while it is not known.
export const link = { state: 'wait', cause: '', heard: null };

// follow keeps the store up to date. It calls changed after changes, and connected
// when the state of the link changes.
export function follow(changed, connected) {
  let source = null;
  let leave = 0;
  let sign = Date.now(); // when the server last sent something
  const turn = (state, cause = '') => {
    if (link.state === state && link.cause === cause) return;
    Object.assign(link, { state, cause });
    connected();
  };
  const open = () => {
    sign = Date.now();
    const own = source = new EventSource('api/v1/stream');
    const on = (name, act) => own.addEventListener(name, (event) => { if (own === source) { sign = Date.now(); act(event); } });
    on('open', () => {});
    on('state', (event) => { apply(JSON.parse(event.data)); changed(); });
    on('beat', (event) => {
      const beat = JSON.parse(event.data);
      // The clocks of the server and of this machine may differ.
      if (beat.heard) link.heard = Date.now() - (new Date(beat.now) - new Date(beat.heard));
      const cause = beat.lost ? 'api' : beat.catchingUp ? 'behind' : '';
      turn(cause ? 'off' : 'on', cause);
    });
    on('error', lost);
  };
  const close = () => { source?.close(); source = null; };
  const lost = async () => {
    turn('off', link.cause === 'api' ? 'api' : 'manager');
    if (source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
    source = null;
    try {
      // A login that has ended shows as a refusal: the form is at the page itself.
      const answer = await fetch('api/v1/state', { method: 'HEAD', signal: AbortSignal.timeout(silence) });
      if (answer.status === 401 || answer.status === 403) { location.reload(); return; }
      turn('off', answer.status === 503 ? 'api' : 'manager');
    } catch { turn('off', 'manager'); }
    setTimeout(() => { if (!source && !document.hidden) open(); }, 2000);
  };
  // A server that hangs closes nothing: no sign for long is an error too.
  setInterval(() => {
    if (!source || Date.now() - sign < silence) return;
    turn('off', 'manager');
    close();
    open();
  }, 1000);
  document.addEventListener('visibilitychange', () => {
    clearTimeout(leave);
    if (!document.hidden) { if (!source) open(); return; }
    leave = setTimeout(() => { close(); turn('wait'); }, hiddenFor);
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
