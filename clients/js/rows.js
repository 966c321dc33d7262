// Rows of a rank: read from Parquet, and hashed as the seal has them (docs/ledger-format.md).
import { createHash } from 'node:crypto';
import { parquetMetadata, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';

export const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest('hex');
export const TABLES = Object.fromEntries(Object.entries({ // columns and their types, in the order of the page
  batches: 'step:i8 update:i8 epoch:i4 chunk:i4 position:i8 samples:i4 digest:i8 content:i8 fate:s loss:f4 time:i8 metrics:m reason:s exceptions:s',
  samples: 'step:i8 slot:i4 dataset:i4 index:i8 content:i8', events: 'step:i8 kind:s event:s time:i8', row_losses: 'step:i8 slot:i4 loss:f4',
  rollouts: 'step:i8 rollout:i8 group:i8 dataset:i4 index:i8 policy:i8 tokens:i4 content:i8 reward:f4 advantage:f4 seconds:f4 time:i8',
  uses: 'step:i8 slot:i4 rollout:i8 update:i8 weight:f4', fates: 'step:i8 rollout:i8 fate:s reason:s time:i8',
}).map(([table, columns]) => [table, columns.split(' ').map((column) => column.split(':'))]));
const WRITE = { i8: 'writeBigInt64LE', i4: 'writeInt32LE', f8: 'writeDoubleLE', f4: 'writeFloatLE' };
function encoded(value, type) {
  const known = value !== null && value !== undefined, out = Buffer.alloc(1 + (type.endsWith('8') ? 8 : 4), known ? '\x01\0\0\0\0\0\0\0\0' : 0);
  const length = (number) => out.writeUInt32LE(number, 1) && out;
  if (type === 's') return Buffer.concat([length(Buffer.byteLength(value ?? '')), Buffer.from(value ?? '')]);
  if (type === 'm') return Buffer.concat([length(value?.length ?? 0), ...(value ?? []).flatMap(([k, v]) => [encoded(k, 's'), encoded(v, 'f8')])]);
  if (Number.isNaN(value)) Buffer.from(type === 'f4' ? '0000c07f' : '000000000000f87f', 'hex').copy(out, 1); // one NaN
  else if (known) out[WRITE[type]](type === 'i8' ? BigInt(value) : Number(value), 1);
  return out;
}
export function settled(rows) { // one row a step: the last one that is not only delivered, else the last
  const best = new Map();
  for (const row of rows) if (row.fate !== 'delivered' || (best.get(row.step) ?? row).fate === 'delivered') best.set(row.step, row);
  return [...best.values()];
}
export function rowsHash(tables) {
  let lines = '', rows = 0;
  for (const [table, columns] of Object.entries(TABLES)) {
    const order = (a, b) => Number(a.step - b.step) || Number(a.slot ?? 0) - Number(b.slot ?? 0);
    const found = (table === 'batches' ? settled(tables[table] ?? []) : tables[table] ?? []).toSorted(order);
    const bytes = found.flatMap((row) => columns.map(([name, type]) => encoded(row[name], type)));
    if (found.length) lines += `${table} ${found.length} ${sha256(...bytes)}\n`;
    rows += found.length;
  }
  return { rows, sha256: sha256(lines) };
}
export async function readTable(content) {
  const file = content.buffer.slice(content.byteOffset, content.byteOffset + content.length), metadata = parquetMetadata(file);
  for (const e of metadata.schema) if (e.name === 'metrics') e.converted_type = e.logical_type = undefined; // entries, in their order
  const rows = await parquetReadObjects({ file, metadata, compressors }), entry = ({ key, value }) => [key, value];
  return rows.map((row) => ({ ...row, time: row.time?.getTime(), metrics: row.metrics?.key_value.map(entry) }));
}
