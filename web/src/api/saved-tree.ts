// Questions that the columns of a call tree answer: which functions a stack has, and the tree as
// `heapledger tree --json` prints it.

import type {Columns} from '../flame/columns';
import {valueOf, type Parameter} from '../state/address';

const CHOICES = new Set(['function', 'not-function']);

/** True if an option chooses stacks by the names of their functions. */
export const isChoice = (name: string): boolean => CHOICES.has(name);

/** Returns a test of names, as the command has it: a part, wildcards or `/regex/`. */
function patternOf(text: string): ((name: string) => boolean) | undefined {
  const inner = /^\/(.+)\/$/s.exec(text)?.[1];
  const hasWildcards = /[*?]/.test(text);
  if (inner === undefined && !hasWildcards) return (name) => name.includes(text);
  const escaped = (letter: string): string => (letter === '*' ? '.*' : letter === '?' ? '.' : letter.replace(/[\\^$.+()[\]{}|/]/g, '\\$&'));
  try {
    const expression = new RegExp(inner ?? `^${[...text].map(escaped).join('')}$`, 'su');
    return (name) => expression.test(name);
  } catch {
    return undefined;
  }
}

/** Returns the parent of each node; the root is its own. */
function parentsOf(depth: Uint32Array): Uint32Array {
  const parents = new Uint32Array(depth.length);
  const path: number[] = [];
  depth.forEach((level, node) => {
    path.length = level;
    parents[node] = path.at(-1) ?? node;
    path.push(node);
  });
  return parents;
}

/** Returns the amounts of nodes with all below them. */
function totalsOf(self: Float64Array, parents: Uint32Array): Float64Array {
  const totals = self.slice();
  for (let node = totals.length - 1; node > 0; node -= 1) totals[parents[node]!]! += totals[node]!;
  return totals;
}

/**
 * Returns the tree of the stacks that the options choose, without empty nodes. Undefined if a
 * pattern cannot be read.
 */
export function chosen(tree: Columns, options: readonly Parameter[]): Columns | undefined {
  const choices = options.filter(([name]) => isChoice(name));
  if (choices.length === 0) return tree;
  const {depth, name} = tree;
  const parents = parentsOf(depth);
  const isIn = new Uint8Array(depth.length).fill(1);
  for (const [option, text] of choices) {
    const matches = patternOf(text);
    if (matches === undefined) return undefined;
    const ofNames = tree.names.map((one) => matches(one.function ?? ''));
    const has = new Uint8Array(depth.length);
    for (let node = 1; node < depth.length; node += 1) has[node] = has[parents[node]!]! | Number(ofNames[name[node]!]);
    has.forEach((one, node) => (isIn[node]! &= option === 'function' ? one : 1 - one));
  }
  const self = tree.self.map((amounts) => amounts.map((amount, node) => amount * isIn[node]!));
  // A node is kept if it, or one below it, is chosen.
  const below = totalsOf(Float64Array.from(isIn, (one, node) => Number(one && self.some((amounts) => amounts[node] !== 0))), parents);
  const kept: number[] = [];
  below.forEach((one, node) => (node === 0 || one > 0) && kept.push(node));
  return {
    ...tree,
    total: self.map((amounts) => amounts.reduce((sum, amount) => sum + amount, 0)),
    depth: Uint32Array.from(kept, (node) => depth[node]!),
    name: Uint32Array.from(kept, (node) => name[node]!),
    self: self.map((amounts) => Float64Array.from(kept, (node) => amounts[node]!)),
  };
}

/** Writes a tree as `readColumns` reads it. */
export function bytesOf(tree: Columns): Uint8Array {
  const {unit, metrics, total, cut, names, depth, name, self} = tree;
  const head = new TextEncoder().encode(JSON.stringify({unit, metrics, total, nodes: depth.length, cut, names}));
  const padded = (length: number): number => Math.ceil(length / 8) * 8;
  const parts = [new Uint8Array(12), head, depth, name, ...self];
  const begins = [0, 12];
  let end = padded(12 + head.length);
  for (const part of parts.slice(2)) {
    begins.push(end);
    end = padded(end + part.byteLength);
  }
  const bytes = new Uint8Array(end);
  parts.forEach((part, at) => bytes.set(new Uint8Array(part.buffer, part.byteOffset, part.byteLength), begins[at]!));
  bytes.set(new TextEncoder().encode('HLCOLS01'));
  new DataView(bytes.buffer).setUint32(8, head.length, true);
  return bytes;
}

/** The amounts of a node by the names of metrics. */
type Amounts = Record<string, number>;

/** Returns the tree as `heapledger tree --json` has it. Undefined for a metric that it lacks. */
export function treeAnswer(tree: Columns, options: readonly Parameter[]): unknown {
  const metric = valueOf(options, 'metric') ?? 'bytes';
  const at = tree.metrics.indexOf(metric);
  const least = Number.parseFloat(valueOf(options, 'threshold') ?? '1') / 100;
  if (at < 0 || !Number.isFinite(least)) return undefined;
  const {depth, name, metrics, self} = tree;
  const parents = parentsOf(depth);
  const totals = self.map((amounts) => totalsOf(amounts, parents));
  const amounts = (columns: readonly Float64Array[], node: number): Amounts => Object.fromEntries(metrics.map((one, column) => [one, columns[column]![node]!]));
  const share = (node: number): number => totals[at]![node]! / Math.max(1, totals[at]![0]!);
  const children = new Map<number, number[]>();
  for (let node = 1; node < depth.length; node += 1) {
    if (share(node) < least || totals[at]![node] === 0) continue;
    const siblings = children.get(parents[node]!);
    if (siblings === undefined) children.set(parents[node]!, [node]);
    else siblings.push(node);
  }
  const nodes: unknown[] = [];
  const open = [0];
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    if (node > 0) {
      const {function: called, module, file, line} = tree.names[name[node]!] ?? {};
      nodes.push({depth: depth[node]! - 1, function: called, module, file, line, share: share(node), ...amounts(totals, node), own: amounts(self, node)});
    }
    const siblings = children.get(node) ?? [];
    siblings.sort((a, b) => totals[at]![b]! - totals[at]![a]! || a - b);
    open.push(...siblings.reverse());
  }
  return {direction: 'top-down', metric, total: amounts(totals, 0), nodes};
}
