// A canvas with a graph: drawing, moving, and the choice of boxes by pointer and keyboard. It knows
// nothing of the page around it. The canvas is as large as its place in the window, and the rows
// are moved below it, because browsers do not draw a canvas as tall as a deep stack.

import {needsLightInk, type Palette} from './colors';
import {boxes, nodeAt, paint, rowTop, visibleDepths, type Look, type Orientation} from './draw';
import type {Graph} from './graph';
import {signed, type Labels} from './labels';
import {boxAt, rangeOf, Rows, type Range} from './layout';
import {CHARACTER, FONT, FONT_SIZE} from './svg';
import {NONE} from './tree';

/** The events of a stage, for the page around it. */
export interface StageEvents {
  /** A box was chosen. */
  onChoose(node: number): void;
  /** A box fills the width now; the root if it is left. */
  onZoom(node: number): void;
  /** The pointer is over a box, at a position on the canvas, or over none. */
  onHover(node: number | undefined, x: number, y: number): void;
  /** The picture was moved: where the rows are in all of them, as parts of the whole. */
  onScroll(begin: number, end: number): void;
  /** A key was pressed that the stage has no use for. Returns true if the page has. */
  onKey(event: KeyboardEvent, node: number): boolean;
}

/** The height of a row, in pixels of the page. */
export const ROW = 18;
/** The time that a zoom takes, and the time for new rows in a picture, in milliseconds. */
const ZOOM_TIME = 180;
const ROWS_TIME = 9;
/** The narrowest part that is looked at, as a part of the whole, so that positions stay exact. */
const RANGE_MIN = 1e-9;
const LABEL_MIN = 26;
const DRAG_MIN = 4;
const WHEEL_LINE = 18;

export class Stage {
  chosen = 0;
  zoomed = 0;
  orientation: Orientation = 'icicle';
  matches: Uint8Array | undefined;

  private readonly context: CanvasRenderingContext2D;
  private graph: Graph | undefined;
  private rows: Rows | undefined;
  private palette: Palette | undefined;
  private labels: Labels | undefined;
  private range: Range = {from: 0, to: 1};
  /** The distance of the root's edge to its row, in pixels of the page. */
  private offset = 0;
  /** The deepest row of what is looked at, and of all. */
  private deepest = 0;
  private deepestOfAll = 0;
  private hovered: number | undefined;
  private width = 0;
  private height = 0;
  private ratio = 1;
  private image: ImageData | undefined;
  private frame = 0;
  private move: {start: number; from: Range; to: Range; offsetFrom: number; offsetTo: number} | undefined;
  private drag: {x: number; y: number; range: Range; offset: number; isMoving: boolean} | undefined;
  private readonly observer: ResizeObserver;
  private readonly abort = new AbortController();
  private readonly calm = matchMedia('(prefers-reduced-motion: reduce)');

  constructor(readonly canvas: HTMLCanvasElement, private readonly events: StageEvents) {
    this.context = canvas.getContext('2d', {alpha: false, willReadFrequently: false})!;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(canvas.parentElement!);
    const {signal} = this.abort;
    canvas.addEventListener('wheel', (event) => this.wheel(event), {signal, passive: false});
    canvas.addEventListener('pointerdown', (event) => this.pointerDown(event), {signal});
    canvas.addEventListener('pointermove', (event) => this.pointerMove(event), {signal});
    canvas.addEventListener('pointerup', (event) => this.pointerUp(event), {signal});
    canvas.addEventListener('pointercancel', () => (this.drag = undefined), {signal});
    canvas.addEventListener('pointerleave', () => this.hover(undefined, 0, 0), {signal});
    canvas.addEventListener('keydown', (event) => this.key(event), {signal});
    canvas.addEventListener('focus', () => this.redraw(), {signal});
    canvas.addEventListener('blur', () => this.redraw(), {signal});
    this.resize();
  }

  close(): void {
    this.observer.disconnect();
    this.abort.abort();
    cancelAnimationFrame(this.frame);
  }

  /** Shows another graph, with a box over the whole width and a chosen one. */
  show(graph: Graph, labels: Labels, zoomed: number, chosen: number): void {
    const isOther = this.graph !== graph;
    this.graph = graph;
    this.labels = labels;
    if (isOther) {
      this.rows = new Rows(graph);
      this.deepestOfAll = deepestBelow(graph, 0);
      this.chosen = chosen;
      this.hovered = undefined;
    }
    if (isOther || zoomed !== this.zoomed) this.zoomTo(zoomed, !isOther);
    this.redraw();
  }

  color(palette: Palette): void {
    this.palette = palette;
    this.redraw();
  }

  /** Returns the rows and the look of the present picture in pixels of the page. */
  picture(): {rows: Rows; look: Look; width: number; height: number} | undefined {
    return this.rows && {rows: this.rows, look: this.look(1), width: this.width, height: this.height};
  }

  /** Draws at the next occasion, however often it is called until then. */
  redraw(): void {
    if (this.frame === 0) {
      this.frame = requestAnimationFrame((now) => {
        this.frame = 0;
        this.draw(now);
      });
    }
  }

  /** Lets a box fill the width, and shows its row. */
  zoomTo(node: number, isSmooth = true): void {
    const {graph} = this;
    if (graph === undefined) return;
    this.zoomed = node;
    const range = rangeOf(graph, node);
    if (range.to <= range.from) range.to = range.from + 1;
    this.deepest = deepestBelow(graph, node);
    const top = graph.depth(node) * ROW;
    const isInPlace = top >= this.offset && top <= this.offset + this.height * 0.6;
    this.moveTo(range, isInPlace ? this.offset : Math.max(0, top - this.height * 0.3), isSmooth);
  }

  /** Chooses a box and scrolls to it, without a zoom if it is in sight. */
  choose(node: number): void {
    const {graph} = this;
    if (graph === undefined) return;
    this.chosen = node;
    const {from, to} = rangeOf(graph, node);
    const seen = this.move?.to ?? this.range;
    const span = seen.to - seen.from;
    const pixels = ((Math.min(to, seen.to) - Math.max(from, seen.from)) / span) * this.width;
    const top = graph.depth(node) * ROW;
    let {offset} = this;
    if (top < offset) offset = top;
    else if (top + ROW > offset + this.height) offset = top + ROW - this.height;
    let range = seen;
    if (pixels < 2) {
      // Too narrow or beyond the edge: it gets a fifth of the width, or the place it needs.
      const wanted = Math.max(Math.min(span, (to - from) * 5), RANGE_MIN * graph.width(0));
      range = within({from: (from + to - wanted) / 2, to: (from + to + wanted) / 2}, graph.width(0));
    }
    this.moveTo(range, offset, true);
  }

  /** Zooms by a factor around a position of the canvas. */
  zoomBy(factor: number, x = this.width / 2): void {
    if (this.graph === undefined) return;
    const all = this.graph.width(0);
    const {from, to} = this.move?.to ?? this.range;
    const fixed = from + ((to - from) * x) / this.width;
    const scale = Math.max((RANGE_MIN * all) / (to - from), Math.min(1 / factor, all / (to - from)));
    this.deepest = this.deepestOfAll;
    const range = {from: fixed - (fixed - from) * scale, to: fixed + (to - fixed) * scale};
    this.moveTo(within(range, all), this.offset, false);
  }

  /** Moves the picture by pixels of the page. */
  panBy(x: number, rows: number): void {
    if (this.graph === undefined) return;
    const {from, to} = this.range;
    const step = ((to - from) * x) / this.width;
    if (step !== 0) this.deepest = this.deepestOfAll;
    this.moveTo(within({from: from + step, to: to + step}, this.graph.width(0)), this.offset + rows, false);
  }

  /** Scrolls to a part of all rows, from 0 at the root's edge. */
  scrollTo(part: number): void {
    this.moveTo(this.range, part * this.depthPixels(), false);
  }

  private moveTo(to: Range, offset: number, isSmooth: boolean): void {
    const bounded = this.bounded(offset);
    if (!isSmooth || this.calm.matches || this.width === 0) {
      this.move = undefined;
      this.range = to;
      this.offset = bounded;
    } else {
      this.move = {start: performance.now(), from: this.range, to, offsetFrom: this.offset, offsetTo: bounded};
    }
    this.redraw();
  }

  /** The height of all rows that are known. */
  private depthPixels(): number {
    const {graph, rows} = this;
    if (graph === undefined || rows === undefined) return 0;
    const known = graph.isInverted ? rows.length + Number(!rows.isComplete) : this.deepest + 1;
    return known * ROW;
  }

  private bounded(offset: number): number {
    return Math.max(0, Math.min(offset, this.depthPixels() - this.height));
  }

  private look(scale: number): Look {
    return {
      range: this.range,
      offset: Math.round(this.offset * scale),
      rowHeight: Math.round(ROW * scale),
      orientation: this.orientation,
      matches: this.matches,
    };
  }

  private resize(): void {
    const {width, height} = this.canvas.parentElement!.getBoundingClientRect();
    this.ratio = devicePixelRatio || 1;
    this.width = Math.max(1, Math.floor(width));
    this.height = Math.max(1, Math.floor(height));
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.image = undefined;
    this.offset = this.bounded(this.offset);
    this.redraw();
  }

  private draw(now: number): void {
    const {rows, palette, labels, canvas, context} = this;
    if (rows === undefined || palette === undefined || labels === undefined) return;
    if (devicePixelRatio !== this.ratio) this.resize();
    this.step(now);
    const look = this.look(this.ratio);
    const {width, height} = canvas;
    const end = performance.now() + ROWS_TIME;
    const count = visibleDepths(height, look).last + 2;
    const isDone = rows.ensure(look.range, (look.range.to - look.range.from) / width, count, () => performance.now() > end);
    this.image ??= context.createImageData(width, height);
    const pixels = new Uint32Array(this.image.data.buffer);
    paint({pixels, width, height}, rows, look, palette);
    context.putImageData(this.image, 0, 0);
    this.texts(rows, look, palette, labels);
    this.outlines(rows, look, palette);
    const all = this.depthPixels();
    this.events.onScroll(Math.min(1, this.offset / all), Math.min(1, (this.offset + this.height) / all));
    if (!isDone || this.move !== undefined) this.redraw();
  }

  /** Moves on in a smooth zoom. */
  private step(now: number): void {
    const {move} = this;
    if (move === undefined) return;
    const time = Math.max(0, Math.min(1, (now - move.start) / ZOOM_TIME));
    const part = 1 - (1 - time) ** 3;
    const between = (from: number, to: number): number => from + (to - from) * part;
    this.range = {from: between(move.from.from, move.to.from), to: between(move.from.to, move.to.to)};
    this.offset = between(move.offsetFrom, move.offsetTo);
    if (time === 1) {
      this.range = move.to;
      this.move = undefined;
    }
  }

  private texts(rows: Rows, look: Look, palette: Palette, labels: Labels): void {
    const {context, ratio, canvas, matches} = this;
    const size = FONT_SIZE * ratio;
    context.font = `${size}px ${FONT}`;
    context.textBaseline = 'middle';
    const character = CHARACTER * size;
    const margin = 3 * ratio;
    let ink = '';
    for (const box of boxes(canvas.width, canvas.height, rows, look, LABEL_MIN * ratio)) {
      const {node} = box;
      if (node === NONE) continue;
      const sign = palette.hasSigns ? palette.sign(node) : 0;
      const text = signed(sign, labels.text(node), Math.floor((box.width - 2 * margin) / character));
      if (text === '') continue;
      const plain = palette.box(node);
      const color = matches === undefined ? plain : matches[rows.graph.name(node)] ? palette.match : palette.dim(plain);
      const wanted = needsLightInk(color) ? palette.inks.light : palette.inks.dark;
      if (ink !== wanted) context.fillStyle = ink = wanted;
      const middle = box.y + look.rowHeight / 2;
      // Only characters beyond ASCII may be wider than the font's others.
      if (/^[\x20-\x7e…−]*$/.test(text)) context.fillText(text, box.x + margin, middle);
      else context.fillText(text, box.x + margin, middle, box.width - 2 * margin);
    }
  }

  private outlines(rows: Rows, look: Look, palette: Palette): void {
    const {context, canvas, ratio} = this;
    const isFocused = document.activeElement === canvas;
    for (const [node, line] of [[this.hovered, 1], [this.chosen, isFocused ? 3 : 2]] as const) {
      if (node === undefined || node === NONE) continue;
      const depth = rows.graph.depth(node);
      const {from, to} = rangeOf(rows.graph, node);
      const scale = canvas.width / (look.range.to - look.range.from);
      const left = Math.max(-line, Math.round((from - look.range.from) * scale));
      const right = Math.min(canvas.width + line, Math.max(left + 2, Math.round((to - look.range.from) * scale)));
      if (right < 0 || left > canvas.width) continue;
      context.strokeStyle = palette.outline;
      context.lineWidth = line * ratio;
      const inset = (line * ratio) / 2;
      const top = rowTop(depth, canvas.height, look);
      context.strokeRect(left + inset, top + inset, right - left - 2 * inset, look.rowHeight - 2 * inset);
    }
  }

  private wheel(event: WheelEvent): void {
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? WHEEL_LINE : 1;
    const {x} = this.position(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoomBy(Math.exp((-event.deltaY * unit) / 300), x);
      return;
    }
    const sideways = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    const rows = event.shiftKey && event.deltaX === 0 ? 0 : event.deltaY * unit * this.down();
    const before = this.offset;
    this.panBy(sideways * unit, rows);
    // At the end of the rows the page scrolls.
    if (this.offset !== before || sideways !== 0) event.preventDefault();
  }

  /** The direction of rows that are further from the root: 1 is down. */
  private down(): 1 | -1 {
    return this.orientation === 'icicle' ? 1 : -1;
  }

  private position(event: MouseEvent): {x: number; y: number} {
    const {left, top} = this.canvas.getBoundingClientRect();
    return {x: event.clientX - left, y: event.clientY - top};
  }

  private at({x, y}: {x: number; y: number}): number | undefined {
    return this.rows && nodeAt(x, y, this.width, this.height, this.rows, this.look(1));
  }

  private pointerDown(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.drag = {...this.position(event), range: this.range, offset: this.offset, isMoving: false};
    this.canvas.setPointerCapture(event.pointerId);
  }

  private pointerMove(event: PointerEvent): void {
    const {x, y} = this.position(event);
    const {drag, graph} = this;
    if (drag === undefined || graph === undefined) {
      this.hover(this.at({x, y}), x, y);
      return;
    }
    if (!drag.isMoving && Math.hypot(x - drag.x, y - drag.y) < DRAG_MIN) return;
    drag.isMoving = true;
    this.hover(undefined, 0, 0);
    const step = ((drag.range.to - drag.range.from) * (drag.x - x)) / this.width;
    const range = within({from: drag.range.from + step, to: drag.range.to + step}, graph.width(0));
    this.moveTo(range, drag.offset + (drag.y - y) * this.down(), false);
  }

  private pointerUp(event: PointerEvent): void {
    const {drag} = this;
    this.drag = undefined;
    if (drag === undefined || drag.isMoving) return;
    const node = this.at(this.position(event));
    if (node === undefined) return;
    if (node === NONE) {
      this.zoomBy(4, this.position(event).x);
      return;
    }
    this.chosen = node;
    this.events.onChoose(node);
    this.events.onZoom(node);
  }

  private hover(node: number | undefined, x: number, y: number): void {
    if (this.hovered !== node) this.redraw();
    this.hovered = node;
    this.events.onHover(node, x, y);
  }

  private key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || this.graph === undefined) return;
    this.hover(undefined, 0, 0);
    const done = this.walk(event) || this.events.onKey(event, this.chosen);
    if (done) event.preventDefault();
  }

  /** Moves the choice or the picture by a key. Returns false if the key has no meaning here. */
  private walk(event: KeyboardEvent): boolean {
    const isIcicle = this.orientation === 'icicle';
    const page = Math.max(ROW, this.height - 2 * ROW);
    switch (event.key) {
      case 'ArrowDown':
        return this.pick(isIcicle ? this.inwards() : this.outwards());
      case 'ArrowUp':
        return this.pick(isIcicle ? this.outwards() : this.inwards());
      case 'ArrowLeft':
        return event.shiftKey ? this.moved(-this.width / 4, 0) : this.pick(this.beside(-1));
      case 'ArrowRight':
        return event.shiftKey ? this.moved(this.width / 4, 0) : this.pick(this.beside(1));
      case 'PageDown':
        return this.moved(0, page * this.down());
      case 'PageUp':
        return this.moved(0, -page * this.down());
      case 'Home':
        return this.pick(0);
      case 'Enter':
      case ' ':
        this.events.onZoom(this.chosen);
        return true;
      case 'Escape':
      case '0':
        this.events.onZoom(0);
        return true;
      case '+':
      case '=':
        this.zoomBy(1.5, this.middleOfChosen());
        return true;
      case '-':
        this.zoomBy(1 / 1.5, this.middleOfChosen());
        return true;
      default:
        return false;
    }
  }

  private moved(x: number, rows: number): true {
    this.panBy(x, rows);
    return true;
  }

  private pick(node: number): true {
    if (node !== NONE) {
      this.choose(node);
      this.events.onChoose(node);
    }
    return true;
  }

  private inwards(): number {
    return this.graph!.firstChild(this.chosen);
  }

  private outwards(): number {
    return this.chosen === 0 ? NONE : this.graph!.parent(this.chosen);
  }

  /** Returns the neighbour in the row, whatever called it. */
  private beside(step: 1 | -1): number {
    const {graph, rows} = this;
    const row = rows?.row(graph!.depth(this.chosen));
    if (row === undefined) return NONE;
    const {from, to} = rangeOf(graph!, this.chosen);
    for (let box = boxAt(row, (from + to) / 2) + step; box >= 0 && box < row.length; box += step) {
      if (row.node[box] !== NONE) return row.node[box]!;
    }
    return NONE;
  }

  private middleOfChosen(): number {
    const {from, to} = rangeOf(this.graph!, this.chosen);
    const middle = (((from + to) / 2 - this.range.from) / (this.range.to - this.range.from)) * this.width;
    return Math.max(0, Math.min(this.width, middle));
  }
}

/** Returns a range of the same length that is not beyond the ends of the whole. */
function within({from, to}: Range, all: number): Range {
  const length = Math.min(all, to - from);
  const begin = Math.max(0, Math.min(from, all - length));
  return {from: begin, to: begin + length};
}

/** Returns the depth of the deepest node of a subtree; of a graph turned over, its own. */
function deepestBelow(graph: Graph, node: number): number {
  if (graph.isInverted) return graph.depth(node);
  const {depth, end} = graph.tree;
  let deepest = depth[node]!;
  for (let below = node; below < end[node]!; below++) if (depth[below]! > deepest) deepest = depth[below]!;
  return deepest;
}
