// Compare the vectors with the JavaScript client, and with what a reader of runs does not need: content, packing, weights.
// node vectors.js FOLDER   prints how many agree, and each that does not.
import { readFileSync, readdirSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { blake8, divmod, fingerprint, fold, key64, mix64, permute, permutePass, sampleHash, text64, u64 } from '../../clients/js/hash.js';
import { byCodePoint, parse } from '../../clients/js/json.js';
import { Plan, Tree, digest } from '../../clients/js/plan.js';
import { TABLES, rowsHash, sha256 } from '../../clients/js/rows.js';
import { begunHolds, crcHolds, sealLine } from '../../clients/js/run.js';

const integers = (texts) => texts.map(BigInt);
const texts = (values) => values.map(String);


// Samples: texts, Uint8Array, null, BigInt, arrays of such, objects of such, and {type, shape, bytes} for numbers.
function contentHash(value) {
  const word = (bytes) => blake8(bytes).readBigUInt64LE();
  const begin = (kind, size) => key64(2n, kind, BigInt(size));
  const bytes = (kind, content) => fold(begin(kind, content.length), word(content));
  if (typeof value === 'string') return bytes('string', Buffer.from(value));
  if (value instanceof Uint8Array) return bytes('bytes', value);
  if (value === null) return bytes('none', Buffer.alloc(0));
  if (typeof value === 'bigint') {
    if (BigInt.asIntN(64, value) !== value) return bytes('integer', Buffer.from(String(value)));
    const content = Buffer.alloc(8);
    content.writeBigInt64LE(value);
    return contentHash({ type: '<i8', shape: '()', bytes: content });
  }
  if (Array.isArray(value)) return value.reduce((h, item) => fold(h, contentHash(item)), begin('sequence', value.length));
  if (value.bytes instanceof Uint8Array && value.type) {
    const padded = Buffer.concat([value.bytes, Buffer.alloc((8 - (value.bytes.length % 8)) % 8)]);
    let sum = 0n;
    for (let i = 0; i < padded.length / 8; i++) {
      const key = mix64(u64(BigInt(i + 1) * (key64('content') | 1n)));
      sum += mix64(padded.readBigUInt64LE(8 * i) ^ key);
    }
    return fold(begin(value.type + value.shape, value.bytes.length), u64(sum));
  }
  const names = Object.keys(value).sort(byCodePoint);
  return names.reduce((h, name) => fold(fold(h, text64(name)), contentHash(value[name])), begin('mapping', names.length));
}

// A vector's sample, spelt out, as contentHash takes it.
function sample(spelt) {
  if (spelt === null || typeof spelt === 'string') return spelt;
  if ('integer' in spelt) return BigInt(spelt.integer);
  if ('bytes' in spelt) return Buffer.from(spelt.bytes, 'hex');
  if ('array' in spelt) return { type: spelt.type, shape: spelt.shape, bytes: Buffer.from(spelt.array, 'hex') };
  if ('list' in spelt) return spelt.list.map(sample);
  return Object.fromEntries(Object.entries(spelt.object).map(([name, item]) => [name, sample(item)]));
}

function integerWeights(given) { // [numerator, exponent of two] of each
  const W = 1n << 31n, least = given.reduce((low, [, e]) => (e < low ? e : low), 0n);
  const exact = given.map(([n, e]) => n << (e - least)), whole = exact.reduce((a, b) => a + b);
  const found = exact.map((w) => (w && (w * W) / whole < 1n ? 1n : (w * W) / whole));
  let rest = W - found.reduce((a, b) => a + b);
  const order = [...exact.keys()].filter((d) => exact[d]).sort((a, b) => Number(B(found[a] * whole - exact[a] * W, found[b] * whole - exact[b] * W)) || a - b);
  for (const d of order) if (rest-- > 0n) found[d]++;
  for (rest = found.reduce((a, b) => a + b) - W; rest > 0n; rest--) found[found.indexOf(found.reduce((a, b) => (a > b ? a : b)))]--;
  return found;
}
const B = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
function float(hex) { // Python's hexadecimal float as numerator and exponent of two
  const [, whole, part = '', exponent] = /0x(\d+)(?:\.([0-9a-f]+))?p([+-]\d+)/.exec(hex);
  return [BigInt(`0x${whole}${part}`), BigInt(exponent) - 4n * BigInt(part.length)];
}

function packed(lengths, { row_length: full, algorithm, overflow, open_rows: most, append_eod: eod, sort_window: window }) {
  const kept = lengths.map((n) => (overflow === 'truncate' ? Math.min(n, full) : n));
  const pieces = [], rows = [];
  if (algorithm === 'concat_then_split') {
    let row = 0, column = 0;
    kept.forEach((length, document) => {
      for (let start = 0; start < length;) {
        let size = Math.min(full - column, length - start);
        const first = start;
        [start, column] = [start + size, column + size];
        if (start === length && eod && length !== full && column < full) [size, column] = [size + 1, column + 1];
        pieces.push([row, document, first, size]);
        if (column === full) [row, column] = [row + 1, 0];
      }
    });
  } else {
    let order = [...kept.keys()];
    if (window) order = order.map((_, i) => i % window ? [] : order.slice(i, i + window).sort((a, b) => kept[b] % full - kept[a] % full || a - b)).flat();
    let turn = 0;
    for (const document of order) {
      for (let start = 0; start < kept[document]; start += full) {
        const tokens = Math.min(full, kept[document] - start), size = tokens + (eod && tokens < full ? 1 : 0);
        const open = rows.filter((row) => row.open && row.room >= size);
        if (algorithm === 'best_fit') open.sort((a, b) => a.room - b.room || b.changed - a.changed);
        let row = open[0];
        if (!row) {
          rows.push((row = { number: rows.length, room: full, open: size < full }));
          const opened = rows.filter((other) => other.open);
          if (row.open && most && opened.length > most) opened[0].open = false;
        }
        row.room -= size;
        row.open &&= row.room > 0;
        row.changed = turn++;
        pieces.push([row.number, document, start, size]);
      }
    }
    pieces.sort((a, b) => a[0] - b[0]);
  }
  const count = pieces.length ? pieces.at(-1)[0] + 1 : 0;
  const offsets = Array.from({ length: count + 1 }, (_, row) => pieces.filter((piece) => piece[0] < row).length);
  return { row_offsets: offsets, document: pieces.map((p) => p[1]), start: pieces.map((p) => p[2]), size: pieces.map((p) => p[3]) };
}

const functions = { mix64, fold, sample_hash: sampleHash };
function hash(v) {
  if (v.function === 'text64') return text64(v.of);
  if (v.function === 'key64') return key64(...v.of.map((part) => (typeof part === 'string' ? part : BigInt(part.integer))));
  return functions[v.function](...integers(v.of));
}
function typed(value, type) {
  if (value === null || type === 's') return value;
  if (type === 'm') return value.map(([key, item]) => [key, typed(item, 'f8')]);
  return type[0] === 'i' ? BigInt(value) : value === 'nan' ? NaN : value;
}
function rowsOf(tables) {
  const named = ([table, rows]) => {
    const columns = TABLES[table];
    return [table, rows.map((row) => Object.fromEntries(columns.map(([name, type], i) => [name, typed(row[i], type)])))];
  };
  return rowsHash(Object.fromEntries(Object.entries(tables).map(named)));
}

// What the client gives, beside what the vector says.
const CHECKS = {
  hashes: (v) => [String(hash(v)), v.is],
  permutations: ({ n, key, positions, elements }) => [
    [positions.map((x) => permute(BigInt(n), BigInt(key), BigInt(x))), elements.map((x) => permute(BigInt(n), BigInt(key), BigInt(x), true))].map(texts),
    [elements, positions]],
  windows: (v) => [texts(v.positions.map((x) => permutePass('block', BigInt(v.window), BigInt(v.n), BigInt(v.key), BigInt(x)))), v.elements],
  weights: (v) => [texts(integerWeights(v.given.map(float))), texts(v.integers)],
  trees(v) {
    const tree = new Tree(integers(v.weights), integers(v.owed)), place = BigInt(v.place), counts = v.weights.map(() => '0');
    for (const [d, , n] of tree.draws(0n, place)) counts[d] = String(n);
    const draws = [0n, 1n, 2n, 3n].map((x) => tree.draws(place + x, 1n)[0].slice(0, 2).join(':')).join(' ');
    return [{ draws, counts }, { draws: v.draws, counts: v.counts }];
  },
  plans(v) {
    const files = Object.fromEntries(Object.entries(v.files).map(([name, values]) => [name, integers(values)]));
    const plan = new Plan(v.plan, parse(v.events), files);
    const steps = v.steps.map(({ step }) => {
      const bill = plan.bill(BigInt(step)), { position, samples } = bill;
      const held = samples.length <= 16 ? { samples: samples.map((name) => name.join(':')).join(' ') } : {};
      const where = { step, epoch: String(bill.epoch), chunk: bill.chunk === null ? null : Number(bill.chunk), position: String(position) };
      return { ...where, size: Number(bill.size), id: bill.id, digest: String(digest(position, samples)), ...held };
    });
    return [{ fingerprint: plan.fingerprint, steps }, { fingerprint: v.fingerprint, steps: v.steps }];
  },
  fingerprints: (v) => [fingerprint(parse(v.text)), v.fingerprint],
  packings({ rules, lengths, ...wanted }) {
    const words = Buffer.from(BigInt64Array.from(lengths, BigInt).buffer), lengths_hash = blake8(words).toString('hex');
    const name = fingerprint([1n, parse(JSON.stringify(rules)), BigInt(lengths.length), lengths_hash]);
    return [{ lengths_hash, fingerprint: name, ...packed(lengths, rules) }, wanted];
  },
  contents: (v) => [contentHash(sample(v.sample)).toString(16).padStart(16, '0'), v.hash],
  rows: (v) => [rowsOf(v.tables), { rows: v.rows, sha256: v.sha256 }],
  seals(v) {
    if (v.manifest_line) return [crcHolds(v.manifest_line.trimEnd()), true];
    const begun = parse(v.begun);
    return [[begunHolds(begun), sealLine(begun), sha256(`${v.before}\n${v.line}`)], [true, v.line, v.sha256]];
  },
};

let agree = 0;
for (const name of readdirSync(process.argv[2]).filter((file) => file.endsWith('.json'))) {
  for (const [number, vector] of JSON.parse(readFileSync(`${process.argv[2]}/${name}`)).entries()) {
    const [found, wanted] = CHECKS[name.replace('.json', '')](vector);
    if (isDeepStrictEqual(found, wanted)) agree++;
    else {
      console.log(`${name} ${number}`, found, wanted);
      process.exitCode = 1;
    }
  }
}
console.log(`${agree} vectors agree`);
