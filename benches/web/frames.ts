// The page of `frames`: moves graphs of several shapes and sends what it measured.

import {paletteOf} from '../../web/src/flame/colors';
import type {Columns, FrameName} from '../../web/src/flame/columns';
import {BottomUp, TopDown, type Graph} from '../../web/src/flame/graph';
import {Labels} from '../../web/src/flame/labels';
import {Stage} from '../../web/src/flame/stage';
import {treeOf} from '../../web/src/flame/tree';

const WIDTH = 1600;
const HEIGHT = 900;
const WARM_UP = 15;
const FRAMES = 90;
const NAMES = 4000;

interface Measured {
  shape: string;
  nodes: number;
  /** Milliseconds: to make the tree, and of the first picture. */
  made: number;
  first: number;
  /** Milliseconds from one drawn frame to the next. */
  mean: number;
  slow: number;
  /** Milliseconds of drawing a frame, until a pixel was read back. */
  drawing: number;
}

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

/** Returns columns of nodes given by depth, with the amount of each. */
function columnsOf(depths: number[], amounts: number[]): Columns {
  const next = random(depths.length);
  const names: FrameName[] = [{}];
  for (let at = 1; at < NAMES; at++) names.push({function: `function_${at}_of_it`, module: `lib${at % 23}.so`});
  return {
    unit: 'bytes',
    metrics: ['bytes'],
    total: [amounts.reduce((sum, amount) => sum + amount, 0)],
    cut: {nodes: 0, bytes: 0},
    names,
    depth: Uint32Array.from(depths),
    name: Uint32Array.from(depths, (_, at) => (at === 0 ? 0 : 1 + Math.floor(next() * (NAMES - 1)))),
    self: [Float64Array.from(amounts)],
  };
}

/** A tree as programs make them: few large branches, many small ones, 20 to 60 deep. */
function tree(nodes: number): Columns {
  const next = random(7);
  const depths = [0];
  const amounts = [0];
  let depth = 0;
  while (depths.length < nodes) {
    depth = next() < 0.62 && depth < 60 ? depth + 1 : Math.max(1, depth - Math.floor(next() * 4));
    depths.push(depth);
    amounts.push(Math.floor(2 ** (next() * 14)));
  }
  return columnsOf(depths, amounts);
}

/** All frames 0.9 pixels wide, in all rows of the window. */
function wide(nodes: number): Columns {
  const rows = 56;
  const depths = [0];
  const amounts = [0];
  for (let column = 0; column < nodes / rows; column++) {
    for (let row = 1; row <= rows; row++) {
      depths.push(row);
      amounts.push(row === rows ? 1000 : 0);
    }
  }
  const columns = columnsOf(depths, amounts);
  // Siblings of one name would become one box.
  columns.name.forEach((_, at) => {
    if (at > 0) columns.name[at] = 1 + ((Math.floor((at - 1) / rows) + 7 * depths[at]!) % (NAMES - 1));
  });
  return columns;
}

/** A stack of 30,000 frames, and short branches on its way. */
function deep(nodes: number): Columns {
  const depths = [0];
  const amounts = [0];
  for (let depth = 1; depth <= 30_000; depth++) {
    depths.push(depth);
    amounts.push(1);
  }
  for (let depth = 30_000; depths.length < nodes; depth = Math.max(2, depth - 1)) {
    depths.push(depth);
    amounts.push(2);
  }
  return columnsOf(depths, amounts);
}

function frame(): Promise<number> {
  return new Promise((resolve) => requestAnimationFrame(resolve));
}

async function measure(shape: string, columns: Columns, isInverted = false): Promise<Measured> {
  const begin = performance.now();
  const made = treeOf(columns, 'function', 0);
  const graph: Graph = isInverted ? BottomUp.ofTree(made) : new TopDown(made);
  const end = performance.now();
  const place = document.createElement('div');
  place.style.width = `${WIDTH}px`;
  place.style.height = `${HEIGHT}px`;
  const canvas = document.createElement('canvas');
  place.append(canvas);
  document.body.replaceChildren(place);
  const stage = new Stage(canvas, {
    onChoose: () => {},
    onZoom: () => {},
    onHover: () => {},
    onScroll: () => drawn++,
    onKey: () => false,
  });
  let drawn = 0;
  stage.color(paletteOf(graph, 'module', 'light'));
  stage.show(graph, new Labels(graph), 0, 0);
  const context = canvas.getContext('2d')!;
  const started = performance.now();
  while (drawn === 0) await frame();
  context.getImageData(0, 0, 1, 1);
  const first = performance.now() - started;

  const times: number[] = [];
  const work: number[] = [];
  for (let at = 0; at < WARM_UP + FRAMES; at++) {
    // In by a tenth and out again, sideways, and up and down where there are rows.
    stage.zoomBy(at % 30 < 15 ? 1.01 : 1 / 1.01, WIDTH / 3);
    stage.panBy(at % 20 < 10 ? 3 : -3, at % 40 < 20 ? 5 : -5);
    const before = drawn;
    const now = await frame();
    // The stage asked for its frame before: it has drawn in this one.
    if (drawn === before) await frame();
    context.getImageData(0, 0, 1, 1);
    work.push(performance.now() - now);
    times.push(now);
  }
  stage.close();
  const steps = times.slice(WARM_UP).map((time, at) => time - times[WARM_UP + at - 1]!);
  const mean = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  return {
    shape,
    nodes: made.name.length,
    made: end - begin,
    first,
    mean: mean(steps),
    slow: steps.toSorted((a, b) => b - a)[Math.floor(FRAMES / 10)]!,
    drawing: mean(work.slice(WARM_UP)),
  };
}

async function run(): Promise<void> {
  const measured = [
    await measure('tree', tree(100_000)),
    await measure('tree, bottom-up', tree(100_000), true),
    await measure('wide', wide(100_000)),
    await measure('wide, bottom-up', wide(100_000), true),
    await measure('deep', deep(100_000)),
    await measure('tree', tree(1_000_000)),
    await measure('tree, bottom-up', tree(1_000_000), true),
  ];
  await fetch('/measured', {method: 'POST', body: JSON.stringify(measured)});
}

run().catch((error) => fetch('/measured', {method: 'POST', body: JSON.stringify({error: String(error)})}));
