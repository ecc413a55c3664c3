// The rows of boxes: for each depth, the boxes from left to right with their ends, in the unit of
// the graph's widths. Rows are made from the root on, as far as they are looked at.

import type {Graph} from './graph';
import {NONE} from './tree';

/** The boxes of a depth, sorted by position. They do not overlap. */
export interface Row {
  x0: Float64Array;
  x1: Float64Array;
  /** The node of each box; `NONE` for a box that stands for siblings too narrow to be shown. */
  node: Int32Array;
  length: number;
}

/** The part of the widths that is looked at. */
export interface Range {
  from: number;
  to: number;
}

/**
 * The number of nodes up to which all boxes of a row are made, whatever is looked at. Rows of
 * larger graphs have the boxes of a part that are wide enough, and are made again for another part.
 */
const WHOLE_MAX = 300_000;

/** The narrowest box that is made by itself, as a part of a pixel. */
const PIXELS_MIN = 0.3;

/** Boxes of a graph by depth. */
export class Rows {
  private rows: Row[] = [];
  private built: Range = {from: 0, to: 0};
  private widthMin = Infinity;
  private isEnd = false;
  private readonly isWhole: boolean;

  constructor(readonly graph: Graph) {
    this.isWhole = !graph.isInverted && graph.tree.name.length <= WHOLE_MAX;
  }

  /** The number of rows made so far. */
  get length(): number {
    return this.rows.length;
  }

  /** True if all rows are made that have boxes in the part last looked at. */
  get isComplete(): boolean {
    return this.isEnd;
  }

  row(depth: number): Row | undefined {
    return this.rows[depth];
  }

  /**
   * Makes the first `count` rows of what is looked at, at `unitsPerPixel`. Stops when `isLate`
   * returns true, and returns false then: the next call goes on.
   */
  ensure(range: Range, unitsPerPixel: number, count: number, isLate: () => boolean = () => false): boolean {
    if (!this.covers(range, unitsPerPixel)) this.begin(range, unitsPerPixel);
    while (this.rows.length < count && !this.isEnd) {
      if (isLate()) return false;
      const row = this.next(this.rows.at(-1)!, isLate);
      if (row === undefined) return false;
      if (row.length === 0) this.isEnd = true;
      else this.rows.push(row);
    }
    return true;
  }

  private covers({from, to}: Range, unitsPerPixel: number): boolean {
    if (this.rows.length === 0) return false;
    if (this.isWhole) return true;
    const finest = unitsPerPixel * PIXELS_MIN;
    return this.built.from <= from && to <= this.built.to && this.widthMin <= finest && this.widthMin > finest / 16;
  }

  private begin({from, to}: Range, unitsPerPixel: number): void {
    const width = this.graph.width(0);
    if (this.isWhole) {
      this.built = {from: 0, to: width};
      this.widthMin = 0;
    } else {
      // So wide and fine that rows last while somebody moves and zooms a little.
      const margin = (to - from) / 2;
      this.built = {from: Math.max(0, from - margin), to: Math.min(width, to + margin)};
      this.widthMin = (unitsPerPixel * PIXELS_MIN) / 2;
    }
    this.isEnd = false;
    this.rows = [{x0: Float64Array.of(0), x1: Float64Array.of(width), node: Int32Array.of(0), length: 1}];
  }

  /**
   * Returns the row below: the children of the boxes of a row. Returns `undefined` if it is late
   * and children had to be made: the next call finds these and goes further.
   */
  private next(above: Row, isLate: () => boolean): Row | undefined {
    const {graph, built, widthMin} = this;
    const row = new GrowingRow(above.length);
    let hasMade = false;
    for (let box = 0; box < above.length; box++) {
      const node = above.node[box]!;
      if (node === NONE || !graph.hasChildren(node)) continue;
      let x = above.x0[box]!;
      const end = x + graph.width(node) - graph.own(node);
      if (end <= built.from || x >= built.to) continue;
      if (!graph.isMade(node)) {
        if (hasMade && isLate()) return undefined;
        hasMade = true;
      }
      for (let child = graph.firstChild(node); child !== NONE; child = graph.nextSibling(child)) {
        const width = graph.width(child);
        if (width < widthMin || width === 0 || x >= built.to) {
          // The others are narrower still.
          if (width > 0 && x < built.to && end > x) row.push(x, end, NONE);
          break;
        }
        if (x + width > built.from) row.push(x, x + width, child);
        x += width;
      }
    }
    return row.done();
  }
}

/** A row to which boxes are added. */
class GrowingRow {
  private x0: Float64Array;
  private x1: Float64Array;
  private node: Int32Array;
  private length = 0;

  constructor(expected: number) {
    const room = Math.max(16, expected);
    this.x0 = new Float64Array(room);
    this.x1 = new Float64Array(room);
    this.node = new Int32Array(room);
  }

  push(x0: number, x1: number, node: number): void {
    if (this.length === this.node.length) this.grow();
    this.x0[this.length] = x0;
    this.x1[this.length] = x1;
    this.node[this.length++] = node;
  }

  done(): Row {
    return {x0: this.x0, x1: this.x1, node: this.node, length: this.length};
  }

  private grow(): void {
    const x0 = new Float64Array(2 * this.length);
    const x1 = new Float64Array(2 * this.length);
    const node = new Int32Array(2 * this.length);
    x0.set(this.x0);
    x1.set(this.x1);
    node.set(this.node);
    [this.x0, this.x1, this.node] = [x0, x1, node];
  }
}

/** Returns the first box from `begin` on that ends after `x`, or the row's length. */
export function firstEndingAfter(row: Row, x: number, begin = 0): number {
  let low = begin;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (row.x1[middle]! <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the box at this position, or `NONE` if there is a gap. */
export function boxAt(row: Row, x: number): number {
  const box = firstEndingAfter(row, x);
  return box < row.length && row.x0[box]! <= x ? box : NONE;
}

/**
 * Returns where the box of a node is, by adding up the wider siblings of it and of its callers. The
 * work is the number of these.
 */
export function rangeOf(graph: Graph, node: number): Range {
  let from = 0;
  for (let here = node; here !== 0; here = graph.parent(here)) {
    const parent = graph.parent(here);
    for (let wider = graph.firstChild(parent); wider !== here; wider = graph.nextSibling(wider)) {
      from += graph.width(wider);
    }
  }
  return {from, to: from + graph.width(node)};
}
