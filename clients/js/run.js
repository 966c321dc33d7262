// A run as docs/ledger-format.md says it: log, plans, ranks, seal, history. What is wrong is listed, not thrown.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { range, u64 } from './hash.js';
import { canonical, parse } from './json.js';
import { Plan, digest, sum } from './plan.js';
import { TABLES, readTable, rowsHash, settled, sha256 } from './rows.js';

const padded = (number, width) => String(number).padStart(width, '0'), FOREVER = 1n << 62n;
export function sealLine(b) {
  const state = ['closed', 'interrupted', 'failed'].includes(b.state) ? b.state : 'died', who = `${b.process.join(' ')} ${JSON.stringify(b.host)}`;
  return `${b.attempt} ${b.rank} ${state} ${b.rows} ${b.rows_sha256} ${Math.round(1000 * b.time)} ${who}\n`;
}
export const begunHolds = ({ check, ...others }) => sha256(canonical(others)) === check;
export const crcHolds = (line) => crc32(line.replace(/^\{"crc":\d+,/, '{')) === Number(/^\{"crc":(\d+),/.exec(line)?.[1]);
export class Run {
  problems = [];
  ranks = new Map(); // "attempt rank" to {begun, tables, ended}
  constructor(path) { this.path = path; }
  expect(holds, text) { if (!holds) this.problems.push(text); }
  file(...names) { return existsSync(join(this.path, ...names)) ? readFileSync(join(this.path, ...names)) : Buffer.alloc(0); }
  async read() {
    const head = parse(this.file('log/head.json').toString()), records = [], hashes = [sha256(this.file('run.json'))];
    for (const name of readdirSync(join(this.path, 'log')).filter((n) => /^\d{6}\.json$/.test(n)).sort()) {
      const content = this.file('log', name), record = { ...parse(content.toString()), sha256: sha256(content) };
      this.expect(record.number === BigInt(records.length) && record.previous === hashes.at(-1), `log/${name} does not follow the one before`);
      hashes[records.push(record)] = record.sha256;
    }
    this.expect(hashes[head.number + 1n] === head.sha256, 'log/head.json knows another record');
    this.launches = records.filter((record) => record.type === 'launch');
    for (const launch of this.launches) {
      for (const rank of range(launch.world_size)) await this.readRank(launch, rank);
      if (launch.plan !== null) this.readPlan(launch);
    }
    this.checkSeals(records.filter((record) => record.seal).map((record) => record.seal));
    return Object.assign(this, { head: hashes.at(-1) });
  }
  async readRank(launch, rank) {
    const attempt = `ledger/attempt=${padded(launch.attempt, 4)}`, folder = `${attempt}/rank=${padded(rank, 5)}`;
    const tables = Object.fromEntries(Object.keys(TABLES).map((table) => [table, []]));
    const begun = parse(this.file(attempt, 'begun', `${padded(rank, 5)}.json`).toString() || 'null');
    if (!begun) return; // it never began: open in every seal
    const ended = !['opening', 'running'].includes(begun.state);
    this.ranks.set(`${launch.attempt} ${rank}`, { begun, tables, ended });
    this.expect(begunHolds(begun) && begun.launch === launch.sha256, `begun of ${folder} was altered`);
    const lines = this.file(folder, 'manifest.jsonl').toString().split(/(?<=\n)/), first = lines.slice(0, Number(begun.lines));
    this.expect(sha256(first.join('')) === begun.manifest && first.every((line) => crcHolds(line.trimEnd())), `${folder}/manifest.jsonl was altered`);
    for (const { file, table, size, sha256: hash } of first.filter(Boolean).flatMap((line) => parse(line).files ?? [])) {
      const content = this.file(folder, file), intact = BigInt(content.length) === size && sha256(content) === hash;
      this.expect(intact, `${folder}/${file} is not the one that the manifest knows`);
      if (intact) tables[table] = tables[table].concat(await readTable(content));
    }
    const { rows, sha256: hash } = rowsHash(tables);
    this.expect(!ended || (BigInt(rows) === begun.rows && hash === begun.rows_sha256), `${folder} holds other rows than its begun says`);
  }
  readPlan(launch) {
    const content = this.file('plans', `${launch.plan}.json`), files = {}, kinds = ['reweight', 'rebatch', 'block'];
    for (const { sha256: name } of Object.values(parse(content.toString()).sample_weights ?? {})) {
      const bytes = this.file('plans', `${name}.weights`);
      this.expect(sha256(bytes) === name, `plans/${name}.weights was altered`);
      files[name] = range(bytes.length / 8).map((i) => bytes.readBigInt64LE(8 * Number(i)));
    }
    const made = (this.ranks.get(`${launch.attempt} 0`)?.tables.events ?? []).filter((row) => kinds.includes(row.kind));
    launch.planned = new Plan(content.toString(), [...launch.events, ...made.map((row) => parse(row.event))], files);
    this.expect(sha256(content) === launch.plan_sha256 && launch.planned.fingerprint === launch.plan, `plans/${launch.plan}.json was altered`);
  }
  checkSeals(seals) {
    this.seal = { sha256: '0'.repeat(64), stop: 0n, open: [] };
    for (const seal of seals) {
      const fresh = this.launches.filter(({ attempt }) => this.seal.stop <= attempt && attempt < seal.stop).map((l) => [l.attempt, 0n, l.world_size]);
      const holds = ([attempt, rank]) => !seal.open.some(([a, first, stop]) => a === attempt && first <= rank && rank < stop);
      const added = [...this.seal.open, ...fresh].flatMap(([a, first, stop]) => range(stop - first).map((i) => [a, first + i])).filter(holds);
      const lines = added.map((name) => this.ranks.get(name.join(' '))?.begun).map((begun) => (begun?.rows === undefined ? '?' : sealLine(begun)));
      const wanted = lines.length ? sha256(`${this.seal.sha256}\n${lines.join('')}`) : this.seal.sha256;
      this.expect(seal.sha256 === wanted, `the seal ${seal.sha256} is not that of its ranks`);
      this.seal = seal;
    }
  }
  spans() { // who owns which steps of the newest line, and which of them waited for an update that never came
    const found = [];
    for (let launch = this.launches.findLast((l) => this.rows(l).size), stop = FOREVER, waits = []; launch;) {
      found.unshift({ launch, stop, waits });
      [stop, waits] = [launch.kind === 'replay' ? FOREVER : launch.parent?.step, launch.pending];
      launch = ['root', 'unknown'].includes(launch.kind) ? undefined : this.launches[launch.parent.attempt];
    }
    return found;
  }
  * history() { // each step compared with its bill
    for (const { launch, stop, waits } of this.spans()) {
      for (const [step, rows] of [...this.rows(launch)].sort(([a], [b]) => Number(a - b))) {
        const waited = waits.some(([first, last]) => first <= step && step < last), open = rows.some((row) => row.fate === 'delivered');
        if (step < launch.start_step || step >= stop || rows.length < launch.world_size || (open && !waited)) continue;
        const found = { digest: u64(sum(rows.map((row) => row.digest))), samples: Number(sum(rows.map((row) => BigInt(row.samples)))) };
        this.expect(!launch.planned || this.agrees(launch.planned, step, rows, found), `step ${step} of attempt ${launch.attempt} is not the plan's`);
        const fate = !waited && rows.every((row) => row.fate === 'applied') ? 'applied' : 'skipped';
        yield { step, attempt: launch.attempt, fate, ...found };
      }
    }
  }
  rows(launch) { // step to one row a rank
    const all = range(launch.world_size).flatMap((rank) => settled(this.ranks.get(`${launch.attempt} ${rank}`)?.tables.batches ?? []));
    return all.reduce((found, row) => found.set(row.step, [...(found.get(row.step) ?? []), row]), new Map());
  }
  agrees(plan, step, rows, found) {
    const { position, samples } = plan.bill(step);
    for (const { kind, slot, dataset, substitute } of rows.flatMap((row) => parse(row.exceptions ?? '[]')))
      samples[slot] = kind === 'skipped' ? null : substitute === null ? samples[slot] : [dataset, substitute];
    return digest(position, samples) === found.digest && samples.filter(Boolean).length === found.samples;
  }
}
