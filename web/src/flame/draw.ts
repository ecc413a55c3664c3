// The picture of a graph: boxes as pixels of a bitmap, their texts as a list. The work depends on
// the pixels and not on the number of frames.

import {mixed, needsLightInk, type Palette} from './colors';
import type {Graph} from './graph';
import {boxAt, firstEndingAfter, type Range, type Row, type Rows} from './layout';
import {NONE} from './tree';

/** A flame grows from the bottom, an icicle hangs from the top. */
export type Orientation = 'flame' | 'icicle';

/** The part of the graph that is looked at, and how. Lengths are pixels of the bitmap. */
export interface Look {
  range: Range;
  /** The distance from the root's edge of the picture to its row. */
  offset: number;
  rowHeight: number;
  orientation: Orientation;
  /** The found names, if there is a search. */
  matches?: Uint8Array | undefined;
}

/** A bitmap, row by row from the top. */
export interface Bitmap {
  pixels: Uint32Array;
  width: number;
  height: number;
}

/** A box as a rectangle of the picture. */
export interface Box {
  node: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Boxes of at least this many pixels have a gap after them. */
const GAP_FROM = 3;
/** The distance of the stripes of boxes that have grown or shrunk. */
const STRIPE = 9;

/** Returns the first and the last depth that is visible. */
export function visibleDepths(height: number, look: Look): {first: number; last: number} {
  return {
    first: Math.max(0, Math.floor(look.offset / look.rowHeight)),
    last: Math.max(0, Math.ceil((look.offset + height) / look.rowHeight) - 1),
  };
}

/** Returns the upper edge of a row. */
export function rowTop(depth: number, height: number, {offset, rowHeight, orientation}: Look): number {
  const distance = depth * rowHeight - offset;
  return orientation === 'icicle' ? distance : height - rowHeight - distance;
}

/** Paints the boxes. The rows must have been made for this look. */
export function paint(bitmap: Bitmap, rows: Rows, look: Look, palette: Palette): void {
  const {pixels, width, height} = bitmap;
  pixels.fill(palette.paper);
  const {first, last} = visibleDepths(height, look);
  const scan = new Uint32Array(width);
  for (let depth = first; depth <= last; depth++) {
    const row = rows.row(depth);
    if (row === undefined) break;
    const top = rowTop(depth, height, look);
    const begin = Math.max(0, top);
    const end = Math.min(height, top + look.rowHeight - 1);
    if (begin >= end) continue;
    scan.fill(palette.paper);
    scanBoxes(scan, row, rows.graph, look, palette);
    for (let y = begin; y < end; y++) pixels.set(scan, y * width);
    marks(bitmap, row, look, palette, begin, end);
  }
}

/** Paints one line of a row: each pixel shows the box at its centre, or one that was found. */
function scanBoxes(scan: Uint32Array, row: Row, graph: Graph, look: Look, palette: Palette): void {
  const {range, matches} = look;
  const scale = scan.length / (range.to - range.from);
  const edge = (x: number): number => Math.max(0, Math.min(scan.length, Math.round((x - range.from) * scale)));
  const gap = (left: number, right: number): number => (right - left >= GAP_FROM ? 1 : 0);
  for (let box = firstEndingAfter(row, range.from); box < row.length && row.x0[box]! < range.to; ) {
    const left = edge(row.x0[box]!);
    const right = edge(row.x1[box]!);
    if (left === right) {
      // No pixel has its centre in here: go on at the centre of the next.
      box = firstEndingAfter(row, range.from + (left + 0.5) / scale, box + 1);
      continue;
    }
    const node = row.node[box]!;
    let color = node === NONE ? palette.rest : palette.box(node);
    if (matches !== undefined && (node === NONE || !matches[graph.name(node)])) color = palette.dim(color);
    // Boxes that differ by their frames alone are too narrow for one here.
    if (palette.isFramed && right - left < GAP_FROM) color = palette.rest;
    const end = right - gap(left, right);
    for (let x = left; x < end; x++) scan[x] = color;
    box++;
  }
  if (matches === undefined) return;
  const found = matching(row, graph, matches);
  for (let at = firstListed(found, row, range.from); at < found.length && row.x0[found[at]!]! < range.to; ) {
    // However narrow, a box that was found has a pixel.
    const left = Math.min(edge(row.x0[found[at]!]!), scan.length - 1);
    const right = Math.max(left + 1, edge(row.x1[found[at]!]!));
    scan.fill(palette.match, left, right - gap(left, right));
    at = right === left + 1 ? firstListed(found, row, range.from + (left + 1) / scale, at + 1) : at + 1;
  }
}

/** Draws frames where boxes have no colours, and stripes where they have grown or shrunk. */
function marks(
  {pixels, width}: Bitmap,
  row: Row,
  look: Look,
  palette: Palette,
  top: number,
  bottom: number,
): void {
  if (!palette.isFramed && !palette.hasSigns) return;
  for (const {node, left, right} of wideBoxes(row, width, look.range, GAP_FROM)) {
    const sign = node === NONE ? 0 : palette.sign(node);
    const color = pixels[top * width + left]!;
    const contrast = needsLightInk(color) ? 0xffffffff : 0xff000000;
    const ink = mixed(color, contrast, palette.isFramed ? 0.4 : 0.22);
    if (sign !== 0) {
      for (let y = top; y < bottom; y++) {
        // Growth rises from left to right.
        const phase = (((sign > 0 ? y : -y) % STRIPE) + STRIPE) % STRIPE;
        for (let x = left + ((STRIPE - phase - (left % STRIPE) + STRIPE) % STRIPE); x < right - 1; x += STRIPE) {
          pixels[y * width + x] = ink;
        }
      }
    }
    if (palette.isFramed) {
      pixels.fill(contrast, top * width + left, top * width + right);
      for (let y = top; y < bottom; y++) pixels[y * width + left] = contrast;
    }
  }
}

/** Returns the visible boxes of at least `widthMin` pixels, from the root's row on. */
export function* boxes(width: number, height: number, rows: Rows, look: Look, widthMin: number): Generator<Box> {
  const {first, last} = visibleDepths(height, look);
  for (let depth = first; depth <= last; depth++) {
    const row = rows.row(depth);
    if (row === undefined) return;
    const y = rowTop(depth, height, look);
    for (const {node, left, right} of wideBoxes(row, width, look.range, widthMin)) {
      yield {node, x: left, y, width: right - left, height: look.rowHeight};
    }
  }
}

/** Finds the boxes of at least so many pixels, in steps of as many: narrow ones cost nothing. */
function* wideBoxes(
  row: Row,
  width: number,
  range: Range,
  widthMin: number,
): Generator<{node: number; left: number; right: number}> {
  const scale = width / (range.to - range.from);
  const step = widthMin / scale;
  for (let box = firstEndingAfter(row, range.from); box < row.length && row.x0[box]! < range.to; ) {
    const x0 = Math.max(range.from, row.x0[box]!);
    const x1 = Math.min(range.to, row.x1[box]!);
    if (x1 - x0 >= step) {
      yield {
        node: row.node[box]!,
        left: Math.round((x0 - range.from) * scale),
        right: Math.round((x1 - range.from) * scale),
      };
      box++;
    } else {
      // A wide box that begins before `x0 + step` holds that point, and no box before it is wide.
      box = firstEndingAfter(row, x0 + step, box + 1);
    }
  }
}

/** Returns the node at a pixel of the picture, `NONE` for siblings too narrow, or `undefined`. */
export function nodeAt(x: number, y: number, width: number, height: number, rows: Rows, look: Look): number | undefined {
  const distance = look.orientation === 'icicle' ? y : height - 1 - y;
  const depth = Math.floor((distance + look.offset) / look.rowHeight);
  const row = rows.row(depth);
  if (row === undefined) return undefined;
  const box = boxAt(row, look.range.from + ((x + 0.5) / width) * (look.range.to - look.range.from));
  return box === NONE ? undefined : row.node[box]!;
}

/** The found boxes of rows, kept until a row is made again or another search is made. */
const FOUND = new WeakMap<Row, {matches: Uint8Array; boxes: Int32Array}>();

function matching(row: Row, graph: Graph, matches: Uint8Array): Int32Array {
  const known = FOUND.get(row);
  if (known?.matches === matches) return known.boxes;
  const boxes = new Int32Array(row.length);
  let count = 0;
  for (let box = 0; box < row.length; box++) {
    const node = row.node[box]!;
    if (node !== NONE && matches[graph.name(node)]) boxes[count++] = box;
  }
  const found = boxes.slice(0, count);
  FOUND.set(row, {matches, boxes: found});
  return found;
}

/** Returns the first of the listed boxes that ends after `x`, or the length of the list. */
function firstListed(list: Int32Array, row: Row, x: number, begin = 0): number {
  let low = begin;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (row.x1[list[middle]!]! <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}
