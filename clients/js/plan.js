// What a plan with its events says of a step, by docs/order-format.md.
import { div, divmod, fingerprint, fold, key64, permute, permutePass, range, sampleHash, text64, u64 } from './hash.js';
import { parse } from './json.js';

const W = 1n << 31n, min = (a, b) => (a < b ? a : b), max = (a, b) => (a > b ? a : b), compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
export const sum = (values) => values.reduce((a, b) => a + b, 0n);
export class Tree {
  constructor(weights, owed) {
    const live = [...weights.keys()].filter((d) => weights[d]);
    const [each, rest] = divmod(sum(live.map((d) => owed[d])), BigInt(live.length));
    let nodes = live.map((d, i) => ({ n: weights[d], low: d, owed: owed[d] - each - (BigInt(i) < rest ? 1n : 0n) }));
    while (nodes.length > 1) {
      const [right, left, ...others] = nodes.sort((x, y) => compare(x.n, y.n) || x.low - y.low);
      const n = left.n + right.n, both = left.owed + right.owed, phi = n / 2n + div(n * left.owed - left.n * both, W);
      nodes = [{ n, low: Math.min(left.low, right.low), owed: both, left, right, phi }, ...others];
    }
    this.root = nodes[0];
  }
  draws(lo, m, node = this.root) { // [source, first draw, draws] of the places [lo, lo + m)
    if (m === 0n) return [];
    if (!node.left) return [[node.low, lo, m]];
    const F = (x) => min(max(div(node.left.n * x + node.phi, node.n), 0n), x), before = F(lo), taken = F(lo + m) - before;
    return [...this.draws(before, taken, node.left), ...this.draws(lo - before, m - taken, node.right)];
  }
}
export class Plan {
  constructor(text, events, files = {}) { // files: the integers of each .weights file, by its name
    const plan = (this.plan = parse(text));
    if (plan.order_version !== 2n || plan.curriculum || plan.chosen_chunks) throw new Error('a plan of a kind that is not read here');
    Object.assign(this, { events, base: events.find((e) => e.kind === 'base') ?? {}, lengths: plan.datasets.map((d) => d.length), known: [] });
    this.parts = plan.datasets.map((d, n) => d.parts ?? [{ number: BigInt(n), name: d.name, rows: d.length, samples: d.length }]);
    this.E = plan.mixture ? plan.mixture.epoch_samples : sum(this.lengths);
    this.restart = plan.mixture?.stopping === 'restart';
    this.tables = plan.datasets.map((d) => files[plan.sample_weights?.[d.name]?.sha256]);
    this.located = this.steps();
    const { events: _, lookahead_steps: __, ...kept } = { ...plan, datasets: plan.datasets.map(({ location, ...d }) => d) };
    this.fingerprint = fingerprint(kept);
  }
  * steps() {
    const { plan, E, base: { pace } } = this, sizes = plan.batch_schedule ?? [[0n, plan.global_batch_size]];
    let { step, epoch, offset, position: drawn, chunk: first, batch, later } = pace
      ?? { step: 0n, epoch: 0n, offset: 0n, position: 0n, chunk: 0n, batch: sizes[0][1], later: sizes.slice(1) };
    let laterChunks = pace ? pace.later_chunks ?? [] : (plan.chunk_schedule ?? []).slice(1);
    let chunkBatches = (pace ?? plan).chunk_batches, chunk = null, left = 0n, anew;
    const ends = () => offset >= E || (plan.drop_last && E - offset < batch);
    for (;; step++) {
      if ((anew = ends())) [epoch, offset] = [epoch + 1n, 0n];
      for (const e of this.events.filter(({ kind, step: at }) => kind === 'rebatch' && at === step))
        [{ epoch, offset, global_batch_size: batch, chunk_batches: chunkBatches, later = [] }, anew] = [e, true];
      if (later[0]?.[0] === step) [[[, batch], ...later], anew] = [later, true];
      if (ends()) [epoch, offset] = [epoch + 1n, 0n];
      if (chunkBatches === null) chunk = null;
      else if (chunk === null || anew || left === 0n) {
        chunk = chunk === null ? first : chunk + 1n;
        if (laterChunks[0]?.[0] === chunk) [[, chunkBatches], ...laterChunks] = laterChunks;
        left = chunkBatches;
      }
      const size = min(batch, E - offset);
      yield { step, epoch, chunk, position: this.restart ? drawn : epoch * E + offset, size };
      [first, left, offset, drawn] = [0n, left - 1n, offset + size, drawn + size];
    }
  }
  at(wanted, i = 0) { // the first step that this holds of, from the i-th known one on
    while (!this.known[i] || !wanted(this.known[i])) if (this.known[i]) i++; else this.known.push(this.located.next().value);
    return this.known[i];
  }
  allStages() {
    const { base, plan: { mixture } } = this, zeros = this.lengths.map(() => 0n);
    const changes = [...mixture.stages, ...this.events.filter((e) => e.kind === 'reweight').map((e) => [e.position, e.weights])]
      .filter(([position]) => !base.stage || position > base.position).sort((a, b) => compare(a[0], b[0]));
    const borders = new Map(changes.map(([p, weights]) => [p ? this.at((s) => s.position >= p).position : 0n, weights])), found = [];
    if (base.stage) found.push({ ...base.stage, tree: new Tree(base.stage.weights, base.stage.residuals) });
    for (const [start, weights] of borders) {
      const last = found.at(-1) ?? { start, weights, drawn: zeros, residuals: zeros, tree: new Tree(weights, zeros) };
      const n = start - last.start, counts = [...zeros];
      for (const [d, , m] of last.tree.draws(0n, n)) counts[d] = m;
      const residuals = last.residuals.map((r, d) => r + last.weights[d] * n - W * counts[d]);
      found.push({ start, weights, drawn: last.drawn.map((x, d) => x + counts[d]), residuals, tree: new Tree(weights, residuals) });
    }
    return found;
  }
  * mixed(position, size) { // [source, row] of each slot of a step
    const { seed, shuffle, block_samples: window } = this.plan, k = (size + 4095n) / 4096n;
    const [epoch, p] = this.restart ? [0n, position] : divmod(position, this.E);
    const S = this.restart ? key64(seed) : key64(seed, 'epoch', epoch), R = fold(S, text64('round'));
    for (const i of range(k)) {
      const lo = p + (i * size) / k, { start, tree, drawn } = (this.stages ??= this.allStages()).findLast((stage) => stage.start <= lo);
      for (const [d, j] of this.round(tree, lo - start, p + ((i + 1n) * size) / k - lo, fold(R, lo))) {
        const [pass, x] = divmod(drawn[d] + j, this.lengths[d]), key = fold(fold(S, BigInt(d)), pass);
        yield [d, this.weighted(d, permutePass(shuffle, window, this.lengths[d], key, x), key)];
      }
    }
  }
  round(tree, lo, m, key) {
    if (this.plan.shuffle === 'none') return range(m).map((x) => tree.draws(lo + x, 1n)[0]);
    const found = tree.draws(lo, m), labels = found.flatMap(([d, , n]) => Array(Number(n)).fill(d)), next = Object.fromEntries(found);
    const keys = BigUint64Array.from(range(m), (i) => (fold(key, i) & ~4095n) | i).sort();
    return Array.from(keys, (slot) => labels[slot & 4095n]).map((d) => [d, next[d]++]);
  }
  unweighted(place) {
    const { seed, shuffle, block_samples: window } = this.plan, [epoch, x] = divmod(place, this.E);
    let row = permutePass(shuffle, window, this.E, key64(seed, epoch), x), d = 0;
    while (row >= this.lengths[d]) row -= this.lengths[d++];
    return [d, this.weighted(d, row, key64(seed, epoch, BigInt(d)))];
  }
  weighted(d, k, key) {
    const weights = this.tables[d];
    if (!weights) return k;
    const N = BigInt(weights.length), size = { none: 1n, full: N }[this.plan.shuffle] ?? min(this.plan.block_samples, N);
    const inside = (n, start) => start + permute(min(size, N - start), fold(key64('sample weights', 'layout'), n / size), n - start);
    weights.rows ??= range(N).map((n) => (size === 1n ? n : inside(n, n - (n % size)))); // the table, and where stretches end
    weights.ends ??= weights.rows.map(((end) => (row) => (end += weights[row]))(0n));
    const T = weights.ends.at(-1), point = (k * T + ((fold(key, text64('phase')) * T) >> 64n)) / N;
    let low = 0, high = weights.length - 1;
    for (let n = high >> 1; low < high; n = (low + high) >> 1) if (weights.ends[n] > point) high = n; else low = n + 1;
    return weights.rows[low];
  }
  named(source, row) {
    const { number, samples, first = 0n } = this.parts[source].find(({ rows }) => row < rows || ((row -= rows), false));
    return [number, first + (row % samples)];
  }
  blocked(step) { // "dataset:index" of what is blocked at a step
    const born = Object.entries(this.plan.blocked ?? {}).map(([name, indices]) => [this.parts.flat().find((p) => p.name === name).number, indices]);
    const pairs = [...born, ...this.events.filter((e) => e.kind === 'block' && e.step <= step).map((e) => [e.dataset, e.indices])];
    const digits = (gap) => [...gap].reduce((n, c) => n * 36n + BigInt(parseInt(c, 36)), 0n);
    const kept = Object.entries(this.base.blocked ?? {}).map(([d, gaps]) => [d, gaps.split(' ').map(((i) => (gap) => (i += digits(gap)))(0n))]);
    return new Set([...pairs, ...kept].flatMap(([dataset, indices]) => indices.map((i) => `${dataset}:${i}`)));
  }
  substitute(source, dataset, index, blocked) {
    const { rows, samples, first = 0n } = this.parts[source].find((part) => part.number === dataset);
    const reach = min(rows, samples), key = key64(this.plan.seed, 'substitute'), weights = this.tables[source];
    const drawn = weights && new Set(weights.flatMap((w, row) => (w ? [this.named(source, BigInt(row)).join(':')] : [])));
    for (let at = permute(reach, key, index - first, true), t = 1n; t < reach; t++) {
      const found = first + permute(reach, key, (at + t) % reach), name = `${dataset}:${found}`;
      if (!blocked.has(name) && (!drawn || drawn.has(name))) return found;
    }
    throw new Error(`dataset ${dataset} has no sample left`);
  }
  bill(number) {
    const from = Math.min(this.known.length, this.known.length && Number(number - this.known[0].step));
    const at = this.at((s) => s.step === number, from), { position, size, step, epoch } = at, blocked = this.blocked(step);
    const rows = this.plan.mixture ? [...this.mixed(position, size)] : range(size).map((slot) => this.unweighted(position + slot));
    const samples = rows.map(([source, row]) => {
      const [dataset, index] = this.named(source, row);
      return [dataset, blocked.has(`${dataset}:${index}`) ? this.substitute(source, dataset, index, blocked) : index];
    });
    const digits = (fold(key64(text64(this.fingerprint)), step) >> 32n).toString(16).padStart(8, '0');
    return { ...at, id: `e${epoch}-s${step}-${digits}`, samples };
  }
}
// A slot that does not count is null.
export const digest = (position, samples) => u64(sum(samples.map((name, slot) => (name ? sampleHash(position + BigInt(slot), ...name) : 0n))));
