// A call tree as a plain list of stacks, and all questions to it answered by brute force.

import type {Columns, FrameName} from '../columns';
import type {Graph} from '../graph';
import {NONE, type Tree} from '../tree';

/** A stack of indices of names, the outermost first, with its own amounts. */
export interface Stack {
  frames: number[];
  amounts: number[];
}

/** A generator of random numbers (xorshift), the same at each run of a seed. */
export function random(seed: number): (below: number) => number {
  let state = (seed + 1) * 0x9e3779b1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

/** Makes the columns of stacks, with nodes in their order. Amounts of equal stacks add up. */
export function columnsOf(stacks: readonly Stack[], names: FrameName[], metrics = ['bytes', 'blocks']): Columns {
  interface Node {
    name: number;
    self: number[];
    children: Map<number, Node>;
  }
  const node = (name: number): Node => ({name, self: metrics.map(() => 0), children: new Map()});
  const root = node(0);
  for (const {frames, amounts} of stacks) {
    let here = root;
    for (const frame of frames) {
      const child = here.children.get(frame) ?? node(frame);
      here.children.set(frame, child);
      here = child;
    }
    amounts.forEach((amount, metric) => (here.self[metric]! += amount));
  }
  const found: {node: Node; depth: number}[] = [];
  const pending = [{node: root, depth: 0}];
  for (let next = pending.pop(); next; next = pending.pop()) {
    found.push(next);
    const {depth} = next;
    for (const child of [...next.node.children.values()].reverse()) pending.push({node: child, depth: depth + 1});
  }
  return {
    unit: 'bytes',
    metrics,
    total: metrics.map((_, metric) => stacks.reduce((sum, {amounts}) => sum + amounts[metric]!, 0)),
    cut: {nodes: 0, bytes: 0},
    names,
    depth: Uint32Array.from(found, ({depth}) => depth),
    name: Uint32Array.from(found, (entry) => entry.node.name),
    self: metrics.map((_, metric) => Float64Array.from(found, (entry) => entry.node.self[metric]!)),
  };
}

/** Writes columns as the server does. */
export function bytesOf(columns: Columns): Uint8Array {
  const {unit, metrics, total, cut, names, depth, name, self} = columns;
  const json = new TextEncoder().encode(JSON.stringify({unit, metrics, total, nodes: depth.length, cut, names}));
  const parts = [depth, name, ...self].map((array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
  const padded = (length: number): number => (length + 7) & ~7;
  const head = padded(12 + json.length);
  const bytes = new Uint8Array(parts.reduce((at, part) => at + padded(part.length), head));
  bytes.set(new TextEncoder().encode('HLCOLS01'));
  new DataView(bytes.buffer).setUint32(8, json.length, true);
  bytes.set(json, 12);
  let at = head;
  for (const part of parts) {
    bytes.set(part, at);
    at += padded(part.length);
  }
  return bytes;
}

/** Returns random stacks of a few functions, so that frames repeat. */
export function randomStacks(next: (below: number) => number, names: number, count: number, deepest: number): Stack[] {
  return Array.from({length: count}, () => ({
    frames: Array.from({length: 1 + next(deepest)}, () => 1 + next(names - 1)),
    amounts: [1 + next(1000), 1 + next(5)],
  }));
}

/** Sums own amounts by the path of frames. */
export function byPath(stacks: readonly Stack[]): Map<string, number[]> {
  const sums = new Map<string, number[]>();
  for (const {frames, amounts} of stacks) {
    const path = frames.join(' ');
    const sum = sums.get(path) ?? amounts.map(() => 0);
    sums.set(path, sum.map((value, metric) => value + amounts[metric]!));
  }
  return sorted(sums);
}

/** Returns the own amounts of all nodes that have some, by path. */
export function selves(tree: Tree): Map<string, number[]> {
  const paths: string[] = [];
  const found = new Map<string, number[]>();
  for (let node = 0; node < tree.name.length; node++) {
    const above = paths[tree.parent[node]!] ?? '';
    paths[node] = node === 0 ? '' : `${above} ${tree.name[node]}`.trim();
    const amounts = tree.self.map((column) => column[node]!);
    if (amounts.some((amount) => amount !== 0)) found.set(paths[node]!, amounts);
  }
  return sorted(found);
}

/** Returns the totals of all nodes of a graph by path, but for the root, down to a depth. */
export function totals(graph: Graph, deepest: number): Map<string, number[]> {
  const found = new Map<string, number[]>();
  const pending: {node: number; path: string}[] = [{node: 0, path: ''}];
  for (let next = pending.pop(); next; next = pending.pop()) {
    const {node, path} = next;
    if (node !== 0) {
      const {tree} = graph;
      found.set(path, tree.self.map((_, metric) => graph.total(node, metric)));
    }
    if (graph.depth(node) === deepest) continue;
    for (let child = graph.firstChild(node); child !== NONE; child = graph.nextSibling(child)) {
      pending.push({node: child, path: `${path} ${graph.name(child)}`.trim()});
    }
  }
  return sorted(found);
}

/** Sums amounts by all beginnings of the paths of frames, but the empty one. */
export function byPrefix(stacks: readonly Stack[], deepest = Infinity): Map<string, number[]> {
  const sums = new Map<string, number[]>();
  for (const {frames, amounts} of stacks) {
    for (let length = 1; length <= Math.min(frames.length, deepest); length++) {
      const path = frames.slice(0, length).join(' ');
      const sum = sums.get(path) ?? amounts.map(() => 0);
      sums.set(path, sum.map((value, metric) => value + amounts[metric]!));
    }
  }
  return sorted(sums);
}

function sorted(map: Map<string, number[]>): Map<string, number[]> {
  return new Map([...map].sort(([a], [b]) => (a < b ? -1 : 1)));
}
