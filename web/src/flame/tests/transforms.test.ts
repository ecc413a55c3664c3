import assert from 'node:assert/strict';
import test from 'node:test';

import type {FrameName} from '../columns';
import {isLike} from '../names';
import {parseTransform, transformed, transformText, type Transform} from '../transforms';
import {mergedByModule, treeOf} from '../tree';
import {byPath, byPrefix, columnsOf, random, randomStacks, selves, totals, type Stack} from './model';
import {TopDown} from '../graph';

// Names 1 to 6 are functions in two modules.
const NAMES: FrameName[] = [
  {function: 'root'},
  ...['a', 'b', 'c', 'd', 'e', 'f'].map((name, index) => ({function: name, module: index < 3 ? 'program' : 'libx.so.1'})),
];

/** The rules of each change, for one stack; `undefined` if the stack is left out. */
const RULES: [Transform, (frames: number[]) => number[] | undefined][] = [
  [{kind: 'focus', function: 'b'}, (frames) => (frames.includes(2) ? frames.slice(frames.indexOf(2)) : undefined)],
  [{kind: 'drop', function: 'b'}, (frames) => (frames.includes(2) ? undefined : frames)],
  [{kind: 'merge', function: 'b'}, (frames) => frames.filter((frame) => frame !== 2)],
  [{kind: 'hide', module: 'LIBX*'}, (frames) => frames.filter((frame) => frame <= 3)],
  [{kind: 'recursion', calls: 'direct'}, (frames) => frames.filter((frame, at) => frame !== frames[at - 1])],
  [{kind: 'recursion', calls: 'all'}, loopErased],
];

function loopErased(frames: number[]): number[] {
  const kept: number[] = [];
  for (const frame of frames) {
    const earlier = kept.indexOf(frame);
    if (earlier >= 0) kept.length = earlier;
    kept.push(frame);
  }
  return kept;
}

function changed(stacks: Stack[], rule: (frames: number[]) => number[] | undefined): Stack[] {
  return stacks.flatMap(({frames, amounts}) => {
    const left = rule(frames);
    return left === undefined ? [] : [{frames: left, amounts}];
  });
}

test('each change does to random trees what its rule does to each stack', () => {
  for (let seed = 0; seed < 60; seed++) {
    const next = random(seed);
    const stacks = randomStacks(next, 2 + next(6), 1 + next(80), 1 + next(12));
    const tree = treeOf(columnsOf(stacks, NAMES), 'function', 0);
    assert.deepEqual(selves(tree), byPath(stacks), `seed ${seed}`);
    for (const [transform, rule] of RULES) {
      const after = transformed(tree, [transform], 0);
      const expected = changed(stacks, rule);
      assert.deepEqual(selves(after), byPath(expected), `seed ${seed}, ${transformText(transform)}`);
      assert.deepEqual(totals(new TopDown(after), Infinity), byPrefix(expected), `seed ${seed}`);
    }
  }
});

test('changes are applied one after the other', () => {
  for (let seed = 100; seed < 140; seed++) {
    const next = random(seed);
    const stacks = randomStacks(next, 7, 60, 10);
    const some = Array.from({length: 3}, () => RULES[next(RULES.length)]!);
    const tree = treeOf(columnsOf(stacks, NAMES), 'function', 0);
    const expected = some.reduce((left, [, rule]) => changed(left, rule), stacks);
    const after = transformed(tree, some.map(([transform]) => transform), 0);
    assert.deepEqual(selves(after), byPath(expected), `seed ${seed}`);
  }
});

test('siblings are sorted, subtrees are ranges, sums are right', () => {
  for (let seed = 0; seed < 40; seed++) {
    const next = random(seed);
    const tree = treeOf(columnsOf(randomStacks(next, 7, 200, 9), NAMES), 'function', seed % 2);
    for (let node = 0; node < tree.name.length; node++) {
      let width = tree.own[node]!;
      let last = Infinity;
      for (let child = node + 1; child < tree.end[node]!; child = tree.end[child]!) {
        assert.equal(tree.parent[child], node);
        assert.equal(tree.depth[child], tree.depth[node]! + 1);
        assert.ok(tree.width[child]! <= last);
        last = tree.width[child]!;
        width += last;
      }
      assert.equal(width, tree.width[node]);
      assert.equal(tree.width[node], tree.total[seed % 2]![node]);
    }
  }
});

// The cases of firefox-devtools/profiler#4508 and #3782.
test('stacks without recursion are not changed by collapsing recursion', () => {
  const [a, b, c, d] = [1, 2, 3, 4] as const;
  const stacks: Stack[] = [
    {frames: [a, b, a, c], amounts: [1, 1]},
    // Shares its beginning with the stack above, but calls nothing twice.
    {frames: [a, b, d], amounts: [2, 1]},
    {frames: [a, b], amounts: [4, 1]},
    {frames: [a, c, d], amounts: [8, 1]},
    {frames: [d, b, c, a], amounts: [16, 1]},
  ];
  const tree = treeOf(columnsOf(stacks, NAMES), 'function', 0);
  const after = selves(transformed(tree, [{kind: 'recursion', calls: 'all'}], 0));
  assert.deepEqual(Object.fromEntries(after), {
    '1 2': [4, 1],
    '1 2 4': [2, 1],
    '1 3': [1, 1],
    '1 3 4': [8, 1],
    '4 2 3 1': [16, 1],
  });
  const direct = transformed(tree, [{kind: 'recursion', calls: 'direct'}], 0);
  assert.deepEqual(selves(direct), selves(tree));
});

test('own amounts go to the line of the innermost call', () => {
  const lines: FrameName[] = [
    {function: 'root'},
    {function: 'walk', file: 'w.c', line: 10},
    {function: 'walk', file: 'w.c', line: 12},
    {function: 'visit', file: 'w.c', line: 30},
  ];
  const stacks: Stack[] = [
    {frames: [1, 1, 2], amounts: [5, 1]},
    {frames: [1, 3, 2, 3], amounts: [7, 1]},
    {frames: [2], amounts: [9, 1]},
  ];
  const tree = treeOf(columnsOf(stacks, lines), 'line', 0);
  const direct = selves(transformed(tree, [{kind: 'recursion', calls: 'direct'}], 0));
  assert.deepEqual(Object.fromEntries(direct), {'1 3 2 3': [7, 1], '2': [14, 2]});
  const all = selves(transformed(tree, [{kind: 'recursion', calls: 'all'}], 0));
  assert.deepEqual(Object.fromEntries(all), {'2': [14, 2], '2 3': [7, 1]});
});

test('frames merge by function, line and module', () => {
  const names: FrameName[] = [
    {function: 'root'},
    {function: 'f', module: 'm', file: 'f.c', line: 1},
    {function: 'f', module: 'm', file: 'f.c', line: 2},
    {function: 'g', module: 'm'},
    {function: 'f', module: 'n'},
  ];
  const stacks: Stack[] = [1, 2, 3, 4].map((frame) => ({frames: [frame], amounts: [frame, 1]}));
  stacks.push({frames: [1, 3, 4], amounts: [100, 1]});
  const columns = columnsOf(stacks, names);
  const merged = (by: 'function' | 'line'): object => Object.fromEntries(selves(treeOf(columns, by, 0)));
  assert.deepEqual(merged('line'), {'1': [1, 1], '1 3 4': [100, 1], '2': [2, 1], '3': [3, 1], '4': [4, 1]});
  assert.deepEqual(merged('function'), {'1': [3, 2], '1 3 4': [100, 1], '3': [3, 1], '4': [4, 1]});
  const modules = mergedByModule(treeOf(columns, 'function', 0), 0);
  assert.deepEqual(Object.fromEntries(selves(modules)), {'1': [6, 3], '1 4': [100, 1], '4': [4, 1]});
});

test('a stack of 30,000 frames and a caller of 100,000 functions pass every change', () => {
  const deep: Stack = {frames: Array.from({length: 30_000}, (_, at) => 1 + (at % 6)), amounts: [1, 1]};
  const wide: FrameName[] = [...NAMES, ...Array.from({length: 100_000}, (_, at) => ({function: `w${at}`}))];
  const stacks = [deep, ...Array.from({length: 100_000}, (_, at) => ({frames: [1, 7 + at], amounts: [1, 1]}))];
  const tree = treeOf(columnsOf(stacks, wide), 'function', 0);
  assert.equal(tree.total[0]![0], 100_001);
  for (const [transform, rule] of RULES) {
    const after = transformed(tree, [transform], 0);
    assert.equal(after.total[0]![0], changed(stacks, rule).length, transformText(transform));
  }
});

test('collapsing recursion takes linear time, however often a deep stack is left', () => {
  // Each of many calls at the end of a deep stack removes the whole of it.
  const depth = 20_000;
  const names: FrameName[] = [{function: 'root'}, ...Array.from({length: depth}, (_, at) => ({function: `f${at}`}))];
  const frames = Array.from({length: depth}, (_, at) => at + 1);
  // One stack for each of 20,000 functions: 4 × 10^8 frames, but only 40,000 nodes.
  const columns = columnsOf([{frames, amounts: [1, 1]}], names);
  const nodes = columns.depth.length;
  const depths = new Uint32Array(nodes + depth).fill(depth + 1);
  const name = new Uint32Array(nodes + depth);
  depths.set(columns.depth);
  name.set(columns.name);
  for (let at = 0; at < depth; at++) name[nodes + at] = 1 + at;
  const self = [0, 1].map(() => new Float64Array(nodes + depth).fill(1));
  const tree = treeOf({...columns, depth: depths, name, self}, 'function', 0);
  const after = transformed(tree, [{kind: 'recursion', calls: 'all'}], 0);
  assert.equal(after.name.length, nodes);
  assert.equal(after.total[0]![0], nodes + depth);
});

test('the text of a change is read again', () => {
  for (const [transform] of RULES) assert.deepEqual(parseTransform(transformText(transform)), transform);
  const odd: Transform = {kind: 'focus', function: 'operator()(int, char:)::x & y=1'};
  assert.deepEqual(parseTransform(transformText(odd)), odd);
  for (const text of ['', 'focus', 'focus:', 'recursion:some', 'explode:x', ':x']) {
    assert.equal(parseTransform(text), undefined, text);
  }
});

test('patterns match as globs do', () => {
  const like = [['libc.so.6', 'libc*'], ['libc.so.6', 'LIBC.so.?'], ['', '*'], ['abcabd', '*ab?'], ['aaa', '*a*a*a*']];
  const unlike = [['libc.so.6', 'libc'], ['libc', 'libc?'], ['abc', ''], ['ab', '*a'], ['a.b', 'a\\.b']];
  for (const [text, pattern] of like) assert.ok(isLike(text!, pattern!), `${text} ${pattern}`);
  for (const [text, pattern] of unlike) assert.ok(!isLike(text!, pattern!), `${text} ${pattern}`);
  assert.ok(!isLike('a'.repeat(5000), '*a'.repeat(50) + 'b'));
});

test('a module whose name could be a pattern is hidden alone', () => {
  const names: FrameName[] = [{function: 'root'}, {function: 'a', module: 'lib*'}, {function: 'b', module: 'libx.so.1'}];
  const tree = treeOf(columnsOf([{frames: [1, 2], amounts: [8, 1]}], names), 'function', 0);
  const hidden = (module: string): string[] =>
    [...transformed(tree, [{kind: 'hide', module}], 0).name].slice(1).map((name) => names[name]!.function ?? '');
  assert.deepEqual([hidden('lib*'), hidden('libx.so.1'), hidden('lib?.so*')], [['b'], ['a'], ['a']]);
});
