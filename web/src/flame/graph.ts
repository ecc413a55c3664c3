// The tree that is shown: the call tree itself, or one that is turned over. Nodes have numbers, and
// the root is 0.

import {firstChild, NONE, type Tree} from './tree';

/** A tree of boxes whose children are asked for one by one, the widest first. */
export interface Graph {
  /** The call tree that it was made of. */
  readonly tree: Tree;
  /** True if it is turned over: a child is the caller of its parent. */
  readonly isInverted: boolean;
  name(node: number): number;
  /** The parent; the root is its own. */
  parent(node: number): number;
  depth(node: number): number;
  width(node: number): number;
  /** The part of the width that children leave free. */
  own(node: number): number;
  self(node: number, metric: number): number;
  total(node: number, metric: number): number;
  hasChildren(node: number): boolean;
  /** True if asking for the first child is no work. */
  isMade(node: number): boolean;
  /** Returns the widest child, or `NONE`. A graph that is turned over may make the children now. */
  firstChild(node: number): number;
  /** Returns the next narrower child of the same parent, or `NONE`. */
  nextSibling(node: number): number;
}

/** The call tree as it is. */
export class TopDown implements Graph {
  readonly isInverted = false;

  constructor(readonly tree: Tree) {}

  name = (node: number): number => this.tree.name[node]!;
  parent = (node: number): number => this.tree.parent[node]!;
  depth = (node: number): number => this.tree.depth[node]!;
  width = (node: number): number => this.tree.width[node]!;
  own = (node: number): number => this.tree.own[node]!;
  self = (node: number, metric: number): number => this.tree.self[metric]![node]!;
  total = (node: number, metric: number): number => this.tree.total[metric]![node]!;
  hasChildren = (node: number): boolean => this.tree.end[node]! > node + 1;
  isMade = (): boolean => true;
  firstChild = (node: number): number => firstChild(this.tree, node);
  nextSibling(node: number): number {
    const next = this.tree.end[node]!;
    return next < this.tree.end[this.tree.parent[node]!]! ? next : NONE;
  }
}

/** The number of nodes after which no more children are made: some 150 bytes each. */
const NODES_MAX = 1_000_000;

/**
 * The call tree turned over. The whole of it may have as many nodes as the stacks have frames
 * together, so children are made when they are asked for first. A node without children yet stands
 * for a range of a list of nodes of the call tree. When its children are made, the callers of these
 * take their places in the range, in parts for each child: there are never more callers than calls.
 * So the list stays as long as it was at first, at most as long as the call tree.
 */
export class BottomUp implements Graph {
  readonly isInverted = true;
  /** True if children were left out because there are too many nodes. */
  isFull = false;

  private readonly names: number[] = [];
  private readonly parents: number[] = [];
  private readonly depths: number[] = [];
  /** The own and all amounts by column (the metrics, and at last the width), and by node. */
  private readonly selves: number[][];
  private readonly totals: number[][];
  /** The first child of a node whose children are made. Children have successive numbers. */
  private readonly first: number[] = [];
  private readonly children: number[] = [];
  /** The range of a node whose children are not made. It is empty if there are none to make. */
  private readonly begin: number[] = [];
  private readonly end: number[] = [];
  /** The index of the width among the columns. */
  private readonly widthColumn: number;
  /** For each node of the call tree, its place in a range that is being made, or `NONE`. */
  private readonly place: Int32Array;
  /** For each name, the group of a range that is being divided, or `NONE`. */
  private readonly groups: Int32Array;
  // Copies of what a range held, and the group of each entry.
  private readonly copied: Uint32Array;
  private readonly copiedAmounts: Float64Array[];
  private readonly groupOf: Uint32Array;

  /** `list` has the nodes that the stacks begin with, `amounts` their amounts by column. */
  private constructor(
    readonly tree: Tree,
    private readonly list: Uint32Array,
    private readonly amounts: Float64Array[],
    private readonly nodesMax: number,
  ) {
    this.widthColumn = tree.self.length;
    this.selves = amounts.map(() => []);
    this.totals = amounts.map(() => []);
    this.place = new Int32Array(tree.name.length).fill(NONE);
    this.groups = new Int32Array(tree.names.length).fill(NONE);
    this.copied = new Uint32Array(list.length);
    this.copiedAmounts = amounts.map(() => new Float64Array(list.length));
    this.groupOf = new Uint32Array(list.length);
  }

  /** Turns the tree over: the children of the root are the functions that allocate. */
  static ofTree(tree: Tree, nodesMax = NODES_MAX): BottomUp {
    const columns = [...tree.self, tree.own];
    const found = nonZero(columns);
    const made = new BottomUp(tree, found, columns.map((column) => picked(column, found)), nodesMax);
    made.add(tree.name[0]!, 0, 0, [...tree.total, tree.width].map((column) => column[0]!));
    columns.forEach((column, at) => (made.selves[at]![0] = column[0]!));
    made.divide(0, 0, found.length);
    return made;
  }

  /**
   * Returns the callers of a function, which is the root. Of recursive calls only the outermost
   * count, so that a block is counted once.
   */
  static callersOf(tree: Tree, functions: Uint8Array, nodesMax = NODES_MAX): BottomUp {
    const nodes: number[] = [];
    for (let node = 1; node < tree.name.length; ) {
      const isFound = functions[tree.name[node]!];
      if (isFound) nodes.push(node);
      node = isFound ? tree.end[node]! : node + 1;
    }
    const found = Uint32Array.from(nodes);
    const amounts = [...tree.total, tree.width].map((column) => picked(column, found));
    const made = new BottomUp(tree, found, amounts, nodesMax);
    const root = made.add(tree.name[nodes[0] ?? 0]!, 0, 0, amounts.map(sum));
    for (let entry = 0; entry < found.length; entry++) made.hold(root, entry);
    return made;
  }

  name = (node: number): number => this.names[node]!;
  parent = (node: number): number => this.parents[node]!;
  depth = (node: number): number => this.depths[node]!;
  width = (node: number): number => this.totals[this.widthColumn]![node]!;
  own = (node: number): number => this.selves[this.widthColumn]![node]!;
  self = (node: number, metric: number): number => this.selves[metric]![node]!;
  total = (node: number, metric: number): number => this.totals[metric]![node]!;
  hasChildren = (node: number): boolean => this.first[node] !== NONE || this.begin[node]! < this.end[node]!;
  isMade = (node: number): boolean => this.begin[node] === this.end[node];

  /** The number of nodes that were made. */
  get count(): number {
    return this.names.length;
  }

  firstChild(node: number): number {
    const begin = this.begin[node]!;
    if (begin < this.end[node]!) {
      if (this.count >= this.nodesMax) {
        this.isFull = true;
        return NONE;
      }
      const end = this.replaceByCallers(begin, this.end[node]!);
      this.end[node] = begin;
      this.divide(node, begin, end);
    }
    return this.first[node]!;
  }

  nextSibling(node: number): number {
    const parent = this.parents[node]!;
    return node !== 0 && node + 1 < this.first[parent]! + this.children[parent]! ? node + 1 : NONE;
  }

  /** Puts the callers of a range in its place, each once. Returns the end of them. */
  private replaceByCallers(begin: number, end: number): number {
    const {list, amounts, place} = this;
    const {parent} = this.tree;
    let filled = begin;
    for (let entry = begin; entry < end; entry++) {
      const caller = parent[list[entry]!]!;
      if (caller === 0) continue;
      const known = place[caller]!;
      // An entry is read before its place is written, because there are no more callers than calls.
      const to = known === NONE ? filled++ : known;
      if (known === NONE) {
        place[caller] = to;
        list[to] = caller;
        for (const column of amounts) column[to] = column[entry]!;
      } else {
        for (const column of amounts) column[to]! += column[entry]!;
      }
    }
    for (let entry = begin; entry < filled; entry++) place[list[entry]!] = NONE;
    return filled;
  }

  /** Makes a child for each name in a range, the widest first, with its part of the range. */
  private divide(parent: number, begin: number, end: number): void {
    const {list, amounts, groups, groupOf, copied, copiedAmounts, widthColumn} = this;
    const {name} = this.tree;
    const members: number[] = [];
    for (let entry = begin; entry < end; entry++) {
      const key = name[list[entry]!]!;
      let group = groups[key]!;
      if (group === NONE) {
        group = members.length;
        groups[key] = group;
        members.push(0);
      }
      groupOf[entry] = group;
      members[group]!++;
      copied[entry] = list[entry]!;
    }
    const sums = amounts.map((column, index) => {
      const copy = copiedAmounts[index]!;
      const found = new Float64Array(members.length);
      for (let entry = begin; entry < end; entry++) {
        copy[entry] = column[entry]!;
        found[groupOf[entry]!]! += column[entry]!;
      }
      return found;
    });
    const keys = members.map(() => 0);
    for (let entry = begin; entry < end; entry++) {
      const key = name[list[entry]!]!;
      keys[groupOf[entry]!] = key;
      groups[key] = NONE;
    }
    const order = members.map((_, group) => group);
    const widths = sums[widthColumn]!;
    order.sort((a, b) => widths[b]! - widths[a]! || keys[a]! - keys[b]!);
    this.first[parent] = order.length > 0 ? this.count : NONE;
    this.children[parent] = order.length;
    const next: number[] = [];
    const child: number[] = [];
    let at = begin;
    for (const group of order) {
      child[group] = this.add(keys[group]!, parent, this.depths[parent]! + 1, sums.map((column) => column[group]!));
      next[group] = at;
      at += members[group]!;
    }
    for (let entry = begin; entry < end; entry++) {
      const group = groupOf[entry]!;
      const to = next[group]!++;
      list[to] = copied[entry]!;
      for (let column = 0; column < amounts.length; column++) amounts[column]![to] = copiedAmounts[column]![entry]!;
      this.hold(child[group]!, to);
    }
  }

  private add(name: number, parent: number, depth: number, totals: number[]): number {
    const node = this.count;
    this.names.push(name);
    this.parents.push(parent);
    this.depths.push(depth);
    this.first.push(NONE);
    this.children.push(0);
    this.begin.push(0);
    this.end.push(0);
    for (let column = 0; column < totals.length; column++) {
      this.totals[column]!.push(totals[column]!);
      this.selves[column]!.push(0);
    }
    return node;
  }

  /** Lets a node stand for the next entry of its range, or own it if the stack begins there. */
  private hold(node: number, entry: number): void {
    if (this.tree.parent[this.list[entry]!] === 0) {
      for (let column = 0; column < this.amounts.length; column++) {
        this.selves[column]![node]! += this.amounts[column]![entry]!;
      }
      return;
    }
    if (this.end[node] === 0) this.begin[node] = entry;
    this.end[node] = entry + 1;
  }
}

/** Returns the numbers from the root's child to the node, without the root. */
export function pathTo(graph: Graph, node: number): number[] {
  const path: number[] = [];
  for (let here = node; here !== 0; here = graph.parent(here)) path.push(here);
  return path.reverse();
}

/** Returns the nodes with an amount in a column, without the root. */
function nonZero(columns: readonly Float64Array[]): Uint32Array {
  const count = columns[0]!.length;
  const found = new Uint32Array(count);
  let length = 0;
  for (let node = 1; node < count; node++) {
    let isZero = true;
    for (let column = 0; column < columns.length; column++) if (columns[column]![node] !== 0) isZero = false;
    if (!isZero) found[length++] = node;
  }
  return found.slice(0, length);
}

function picked(column: Float64Array, at: ArrayLike<number>): Float64Array {
  const values = new Float64Array(at.length);
  for (let index = 0; index < at.length; index++) values[index] = column[at[index]!]!;
  return values;
}

function sum(column: Float64Array): number {
  let total = 0;
  for (const value of column) total += value;
  return total;
}
