// Hashes and permutations of docs/order-format.md. All integers are BigInt.
import { blake2b } from '@noble/hashes/blake2.js';
import { canonical } from './json.js';

const GOLDEN = 0x9e3779b97f4a7c15n, FOLD = 0xd6e8feb86659fd93n, M1 = 0xbf58476d1ce4e5b9n, M2 = 0x94d049bb133111ebn;
export const u64 = (x) => BigInt.asUintN(64, x);
export const div = (a, b) => (a % b !== 0n && a < 0n !== b < 0n ? a / b - 1n : a / b), divmod = (a, b) => [div(a, b), a - div(a, b) * b]; // rounds down
export const range = (n) => Array.from({ length: Number(n) }, (_, i) => BigInt(i));
export function mix64(x) { x = u64((x ^ (x >> 30n)) * M1); x = u64((x ^ (x >> 27n)) * M2); return x ^ (x >> 31n); }
export const fold = (h, x) => mix64(u64(h * FOLD + mix64(u64(x + GOLDEN))));
export const blake8 = (bytes) => Buffer.from(blake2b(bytes, { dkLen: 8 }));
export const text64 = (text) => blake8(Buffer.from(text)).readBigUInt64LE();
export const key64 = (...parts) => parts.reduce((h, p) => fold(h, typeof p === 'string' ? text64(p) : u64(p)), 0n);
export const fingerprint = (value) => blake8(Buffer.from(canonical(value))).toString('hex');
export const sampleHash = (place, dataset, index) => mix64(mix64(u64(place + GOLDEN)) ^ mix64(u64(index * FOLD + dataset * GOLDEN + 1n)));
function table(n, k) {
  const found = range(n), other = (i) => (mix64(u64(k + GOLDEN * (i + 1n))) * (i + 1n)) >> 64n;
  for (let i = n - 1n, j = other(i); i > 0n; j = other(--i)) [found[i], found[j]] = [found[j], found[i]];
  return found;
}
function side(n) { // the smallest a with a * a >= n
  for (let a = BigInt(Math.floor(Math.sqrt(Number(n - 1n)))) - 1n; ; a++) if (a * a >= n) return a;
}
function scatter(right, key, a) {
  const h = u64((right ^ key) * M1);
  return ((u64((h ^ (h >> 32n)) * M2) >> 32n) * a) >> 32n;
}
export function permute(n, key, x, inverse = false) {
  const k = fold(key, n);
  if (n <= 64n) return inverse ? BigInt(table(n, k).indexOf(x)) : table(n, k)[x];
  const a = side(n), bit = u64(k * M2) >> 63n, rounds = n <= 65536n ? 12n : 8n;
  if (inverse && x < 2n) x ^= bit;
  do {
    let left = x / a, right = x % a;
    for (let i = 0n; i < rounds; i++) {
      const turn = u64(k + GOLDEN * (inverse ? rounds - i : i + 1n));
      if (inverse) [left, right] = [(right + a - scatter(left, turn, a)) % a, left];
      else [left, right] = [right, (left + scatter(right, turn, a)) % a];
    }
    x = left * a + right;
  } while (x >= n);
  return !inverse && x < 2n ? x ^ bit : x;
}
export function permutePass(shuffle, w, n, key, x) {
  if (shuffle !== 'block') return shuffle === 'none' ? x : permute(n, key, x);
  const count = (n + w - 1n) / w, short = n - (count - 1n) * w;
  const outer = fold(key, text64('blocks')), inner = fold(key, text64('inside'));
  if (x >= permute(count, outer, count - 1n, true) * w + short) x += w - short;
  const window = permute(count, outer, x / w);
  return window * w + permute(window === count - 1n ? short : w, fold(inner, window), x % w);
}
