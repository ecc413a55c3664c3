// A call tree in memory: columns with the sums of subtrees, the largest children first. All work on
// it is done by loops, because stacks may be 30,000 frames deep.

import type {Columns, FrameName} from './columns';
import {sameNames, type MergeBy} from './names';

/** No node, where a number of a node is expected. */
export const NONE = -1;

/**
 * The columns of a tree, as they go to and from the worker. Nodes are numbered in preorder, so that
 * a subtree is a range of numbers; siblings are sorted by `width`, the widest first.
 */
export interface TreeArrays {
  /** The property by which frames were merged. */
  by: MergeBy;
  /** The metric whose amounts are the widths: an index of `self` and `total`. */
  metric: number;
  /** An index of the names for each node. */
  name: Uint32Array;
  depth: Uint32Array;
  /** The parent of each node. The root is its own parent. */
  parent: Uint32Array;
  /** The node after the last one of the subtree. */
  end: Uint32Array;
  /** The node's own amounts, an array for each metric. */
  self: Float64Array[];
  /** The sums of the subtree, an array for each metric. */
  total: Float64Array[];
  /**
   * The sums of the absolute own amounts in the subtree: the width of the node's box. It is equal
   * to the total if no amount is negative.
   */
  width: Float64Array;
  /** The node's own part of its width, which its children leave free. */
  own: Float64Array;
}

/** A call tree with the names of its frames. */
export interface Tree extends TreeArrays {
  names: readonly FrameName[];
}

/** A metric of the widths, or the pair of metrics of two sides whose larger one is the width. */
export type WidthOf = number | readonly [number, number];

/**
 * Makes a tree of columns: merges frames by a property, and sorts siblings by a metric. The work is
 * proportional to the number of nodes, and to the logarithm of the siblings'.
 */
export function treeOf(columns: Columns, by: 'function' | 'line', width: WidthOf): Tree {
  const {depth, name, self, names} = columns;
  const parent = parents(depth);
  const same = sameNames(names, by);
  const trie = new Trie(depth.length);
  const place = new Int32Array(depth.length);
  trie.root(name[0]!);
  for (let node = 1; node < depth.length; node++) {
    place[node] = trie.child(place[parent[node]!]!, same[name[node]!]!);
  }
  return finish(trie, place, self, names, by, width);
}

/** Merges frames by their modules. Calls within a module are one frame: they would say nothing. */
export function mergedByModule(tree: Tree, width: WidthOf): Tree {
  const {name, parent, self, names} = tree;
  const same = sameNames(names, 'module');
  const trie = new Trie(name.length);
  const place = new Int32Array(name.length);
  trie.root(name[0]!);
  for (let node = 1; node < name.length; node++) {
    const above = place[parent[node]!]!;
    const key = same[name[node]!]!;
    place[node] = above !== 0 && trie.name[above] === key ? above : trie.child(above, key);
  }
  return finish(trie, place, self, names, 'module', width);
}

/**
 * Returns a tree with the same amounts at other nodes: `place` has the node of the trie for each
 * node of `tree`, or `NONE` for those that are left out.
 */
export function rebuilt(tree: Tree, trie: Trie, place: Int32Array, width: WidthOf): Tree {
  return finish(trie, place, tree.self, tree.names, tree.by, width);
}

/** Returns the first child, or `NONE`. The next sibling of a child is `end[child]`. */
export function firstChild(tree: TreeArrays, node: number): number {
  return node + 1 < tree.end[node]! ? node + 1 : NONE;
}

/** Returns the parent of each node. The root is its own. */
export function parents(depth: Uint32Array): Uint32Array {
  const parent = new Uint32Array(depth.length);
  // The latest node at each depth. No depth is larger than the number of nodes.
  const latest = new Uint32Array(depth.length + 1);
  for (let node = 0; node < depth.length; node++) {
    const here = depth[node]!;
    parent[node] = here === 0 ? node : latest[here - 1]!;
    latest[here] = node;
  }
  return parent;
}

/** A tree of names that grows: a node has one child of each name. Node 0 is the root. */
export class Trie {
  /** The number of nodes. */
  count = 0;
  readonly name: Uint32Array;
  readonly parent: Uint32Array;
  readonly depth: Uint32Array;
  /** A hash table with open addressing of nodes plus one; zero is a free entry. */
  private readonly table: Uint32Array;
  private readonly mask: number;

  /** Makes room for so many nodes. */
  constructor(nodesMax: number) {
    this.name = new Uint32Array(nodesMax);
    this.parent = new Uint32Array(nodesMax);
    this.depth = new Uint32Array(nodesMax);
    // At most half of the entries are used.
    const entries = 2 ** Math.ceil(Math.log2(2 * nodesMax + 2));
    this.table = new Uint32Array(entries);
    this.mask = entries - 1;
  }

  /** Makes the root, which must be the first node. */
  root(name: number): void {
    this.name[0] = name;
    this.count = 1;
  }

  /** Returns the child of this name, which is made if there is none. */
  child(parent: number, name: number): number {
    let hash = Math.imul(parent, 0x9e3779b1) ^ Math.imul(name + 1, 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
    for (let at = (hash ^ (hash >>> 13)) & this.mask; ; at = (at + 1) & this.mask) {
      const found = this.table[at]! - 1;
      if (found < 0) {
        const made = this.count++;
        this.table[at] = made + 1;
        this.name[made] = name;
        this.parent[made] = parent;
        this.depth[made] = this.depth[parent]! + 1;
        return made;
      }
      if (this.parent[found] === parent && this.name[found] === name) return found;
    }
  }
}

/** Sums the amounts up and puts the nodes in preorder. */
function finish(
  trie: Trie,
  place: Int32Array,
  amounts: readonly Float64Array[],
  names: readonly FrameName[],
  by: MergeBy,
  widthOf: WidthOf,
): Tree {
  const {count} = trie;
  const own = amounts.map((amount) => summed(place, amount, count));
  const ownWidth = widths(own, widthOf, count);
  const total = own.map((values) => subtreeSums(trie, values));
  const width = subtreeSums(trie, ownWidth);
  const order = preorder(trie, used(trie, own), width);

  const nodes = order.length;
  const rank = new Uint32Array(count);
  for (let at = 0; at < nodes; at++) rank[order[at]!] = at;
  const parent = picked(trie.parent, order, new Uint32Array(nodes));
  const end = new Uint32Array(nodes);
  for (let at = 0; at < nodes; at++) {
    parent[at] = rank[parent[at]!]!;
    end[at] = at + 1;
  }
  for (let at = nodes - 1; at > 0; at--) {
    const above = parent[at]!;
    if (end[above]! < end[at]!) end[above] = end[at]!;
  }
  const moved = (values: Float64Array): Float64Array => picked(values, order, new Float64Array(nodes));
  return {
    by,
    metric: typeof widthOf === 'number' ? widthOf : widthOf[1],
    names,
    name: picked(trie.name, order, new Uint32Array(nodes)),
    depth: picked(trie.depth, order, new Uint32Array(nodes)),
    parent,
    end,
    self: own.map(moved),
    total: total.map(moved),
    width: moved(width),
    own: moved(ownWidth),
  };
}

// Plain loops: with a million nodes, `from` and `forEach` with a function take three times as long.

/** Returns the values at these indices. */
function picked<T extends Uint32Array | Float64Array>(values: T, at: Uint32Array, into: T): T {
  for (let index = 0; index < at.length; index++) into[index] = values[at[index]!]!;
  return into;
}

/** Sums amounts by the nodes that they are for. */
function summed(place: Int32Array, amount: Float64Array, count: number): Float64Array {
  const sums = new Float64Array(count);
  for (let from = 0; from < place.length; from++) {
    const to = place[from]!;
    if (to !== NONE) sums[to]! += amount[from]!;
  }
  return sums;
}

/** Returns the sums of subtrees. */
function subtreeSums(trie: Trie, values: Float64Array): Float64Array {
  const sums = values.slice();
  // A child is made after its parent.
  for (let node = trie.count - 1; node > 0; node--) sums[trie.parent[node]!]! += sums[node]!;
  return sums;
}

/** Returns the absolute amount of each node, of both sides the larger one. */
function widths(own: readonly Float64Array[], of: WidthOf, count: number): Float64Array {
  const [before, after] = typeof of === 'number' ? [own[of]!, own[of]!] : [own[of[0]]!, own[of[1]]!];
  const found = new Float64Array(count);
  for (let node = 0; node < count; node++) {
    found[node] = Math.max(Math.abs(before[node]!), Math.abs(after[node]!));
  }
  return found;
}

/** Returns 1 for the root and each node with an amount of its own or below, otherwise 0. */
function used(trie: Trie, own: readonly Float64Array[]): Uint8Array {
  const found = new Uint8Array(trie.count);
  for (let node = trie.count - 1; node > 0; node--) {
    for (let metric = 0; metric < own.length; metric++) if (own[metric]![node] !== 0) found[node] = 1;
    if (found[node]) found[trie.parent[node]!] = 1;
  }
  found[0] = 1;
  return found;
}

/** Returns the used nodes in preorder: of siblings the widest first, then the first name. */
function preorder(trie: Trie, isUsed: Uint8Array, width: Float64Array): Uint32Array {
  const {count, parent, name} = trie;
  // The children of each node in a common array, from its entry of `begin`.
  const begin = new Uint32Array(count + 1);
  for (let node = 1; node < count; node++) begin[parent[node]! + 1]! += isUsed[node]!;
  for (let node = 0; node < count; node++) begin[node + 1]! += begin[node]!;
  const fill = begin.slice();
  const children = new Uint32Array(count);
  for (let node = 1; node < count; node++) if (isUsed[node]) children[fill[parent[node]!]!++] = node;
  const compare = (a: number, b: number): number => width[b]! - width[a]! || name[a]! - name[b]!;
  for (let node = 0; node < count; node++) {
    if (begin[node + 1]! - begin[node]! > 1) children.subarray(begin[node], begin[node + 1]).sort(compare);
  }

  const order = new Uint32Array(begin[count]! + 1);
  let made = 0;
  const next = begin.slice(0, count);
  for (let node = 0; made < order.length; ) {
    if (next[node] === begin[node]) order[made++] = node;
    if (next[node]! < begin[node + 1]!) {
      node = children[next[node]!++]!;
    } else {
      // A node without children left is not left twice: its entry goes beyond its range.
      next[node]!++;
      node = parent[node]!;
    }
  }
  return order;
}
