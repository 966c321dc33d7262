// node lading.js RUN   lists the history of a run and checks it: log, plans, rows, seal, and every step against its bill.
import { Run } from './run.js';

const run = await new Run(process.argv[2]).read(), steps = [...run.history()], open = [...run.ranks].filter(([, { ended }]) => !ended);
for (const { digest, ...others } of steps) console.log([...Object.values(others), digest.toString(16).padStart(16, '0')].join('\t'));
const unread = open.map(([name]) => `attempt and rank ${name} did not end: rows in its tail are not read here. Run lading compact.`);
for (const text of [...unread, ...run.problems]) console.error(text);
console.error(`${run.problems.length ? 'DOES NOT HOLD' : 'holds'}: ${steps.length} steps of history, head ${run.head}, seal ${run.seal.sha256}`);
process.exitCode = run.problems.length ? 1 : 0;
