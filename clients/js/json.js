// JSON with every digit kept: integers are BigInt, other numbers their text; no key twice. And the text that is hashed.
const STRING_OR_NUMBER = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)/g;
export class Float { constructor(text) { this.text = text; } valueOf() { return Number(this.text); } }

export function parse(text) {
  let keys = 0; // texts get an s in front, numbers become texts with an n: JSON.parse itself would round them
  const marked = text.replace(STRING_OR_NUMBER, (_, string, colon = '', number) => {
    if (colon) keys++;
    return string ? `"s${string.slice(1)}${colon}` : JSON.parse(number) !== undefined && `"n${number}"`; // refuses 01 and 1.
  });
  const plain = (value) => {
    if (value === null || typeof value === 'boolean') return value;
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value === 'object') { // without a prototype: names of datasets are keys
      return Object.keys(value).reduce((found, key) => (keys--, (found[key.slice(1)] = plain(value[key])), found), Object.create(null));
    }
    if (!value.isWellFormed()) throw new SyntaxError('half of a surrogate pair');
    if (value[0] === 's') return value.slice(1);
    return /^n-?\d+$/.test(value) ? BigInt(value.slice(1)) : new Float(value.slice(1));
  };
  const found = plain(JSON.parse(marked));
  if (keys) throw new SyntaxError('a key is there twice');
  return found;
}
const ascii = (text) => JSON.stringify(text).replace(/[\x7f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
export const byCodePoint = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)); // JavaScript sorts by UTF-16 units
export function canonical(value) {
  if (value instanceof Float) return value.text;
  if (typeof value === 'string') return ascii(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return String(value);
  return `{${Object.keys(value).sort(byCodePoint).map((key) => `${ascii(key)}:${canonical(value[key])}`).join(',')}}`;
}
