import assert from 'node:assert/strict';
import test from 'node:test';

import type {FrameName} from '../columns';
import {BottomUp, TopDown, pathTo} from '../graph';
import {boxAt, firstEndingAfter, rangeOf, Rows} from '../layout';
import {search} from '../search';
import {calleesOf, functionsNamed} from '../transforms';
import {NONE, treeOf} from '../tree';
import {byPrefix, columnsOf, random, randomStacks, totals, type Stack} from './model';

const NAMES: FrameName[] = [{function: 'root'}, ...['a', 'b', 'c', 'd', 'e', 'f'].map((name) => ({function: name}))];

function reversed(stacks: Stack[]): Stack[] {
  return stacks.map(({frames, amounts}) => ({frames: frames.toReversed(), amounts}));
}

test('a tree turned over has the totals of the stacks turned over', () => {
  for (let seed = 0; seed < 60; seed++) {
    const next = random(seed);
    const stacks = randomStacks(next, 2 + next(6), 1 + next(100), 1 + next(9));
    const tree = treeOf(columnsOf(stacks, NAMES), 'function', 0);
    const graph = BottomUp.ofTree(tree);
    assert.deepEqual(totals(graph, Infinity), byPrefix(reversed(stacks)), `seed ${seed}`);
    for (let node = 0; node < graph.count; node++) {
      let width = graph.own(node);
      let last = Infinity;
      for (let child = graph.firstChild(node); child !== NONE; child = graph.nextSibling(child)) {
        assert.equal(graph.parent(child), node);
        assert.ok(graph.width(child) <= last);
        last = graph.width(child);
        width += last;
      }
      assert.equal(width, graph.width(node));
    }
  }
});

test('callers and callees of a function have the same total, recursion or not', () => {
  for (let seed = 0; seed < 60; seed++) {
    const next = random(seed);
    const stacks = randomStacks(next, 7, 100, 8);
    const tree = treeOf(columnsOf(stacks, NAMES), 'function', 0);
    const through = stacks.filter(({frames}) => frames.includes(2));
    const callers = BottomUp.callersOf(tree, functionsNamed(tree, 'b'));
    const above = through.map(({frames, amounts}) => ({frames: frames.slice(0, frames.indexOf(2)), amounts}));
    assert.deepEqual(totals(callers, Infinity), byPrefix(reversed(above)), `seed ${seed}`);
    const callees = calleesOf(tree, functionsNamed(tree, 'b'), 0);
    assert.equal(callers.total(0, 0), callees.total[0]![0]);
    const below = through.map(({frames, amounts}) => ({frames: frames.slice(frames.indexOf(2) + 1), amounts}));
    assert.deepEqual(totals(new TopDown(callees), Infinity), byPrefix(below), `seed ${seed}`);
    assert.equal(callers.total(0, 0), through.reduce((sum, {amounts}) => sum + amounts[0]!, 0));
  }
});

test('a deep tree turned over makes only what is asked for', () => {
  // Every frame of a stack of 30,000 allocates: 450 million frames in all stacks together.
  const depth = 30_000;
  const names: FrameName[] = [{function: 'root'}, ...Array.from({length: depth}, (_, at) => ({function: `f${at}`}))];
  const columns = columnsOf([{frames: Array.from({length: depth}, (_, at) => at + 1), amounts: [1, 1]}], names);
  columns.self[0]!.fill(1);
  const graph = BottomUp.ofTree(treeOf(columns, 'function', 0));
  assert.equal(graph.count, depth + 1);
  const rows = new Rows(graph);
  rows.ensure({from: 0, to: graph.width(0)}, graph.width(0) / 1000, 50);
  // Boxes narrower than a part of a pixel are not made, and so nobody asks for their callers.
  assert.equal(graph.count, depth + 1);
  const last = rangeOf(graph, depth);
  rows.ensure(last, (last.to - last.from) / 1000, 50);
  assert.ok(rows.length === 50 && graph.count < depth + 200, `${graph.count}`);
});

test('a tree turned over stops at its bound and says so', () => {
  const stacks = randomStacks(random(9), 7, 500, 8);
  const graph = BottomUp.ofTree(treeOf(columnsOf(stacks, NAMES), 'function', 0), 40);
  totals(graph, Infinity);
  assert.ok(graph.isFull && graph.count < 60, `${graph.count}`);
});

test('rows hold each box where the sums of its siblings put it', () => {
  for (let seed = 0; seed < 30; seed++) {
    const tree = treeOf(columnsOf(randomStacks(random(seed), 7, 120, 9), NAMES), 'function', 0);
    for (const graph of [new TopDown(tree), BottomUp.ofTree(tree)]) {
      const rows = new Rows(graph);
      assert.ok(rows.ensure({from: 0, to: graph.width(0)}, graph.width(0) / 1e9, 1000));
      assert.ok(rows.isComplete);
      let boxes = 0;
      for (let depth = 0; depth < rows.length; depth++) {
        const row = rows.row(depth)!;
        for (let box = 0; box < row.length; box++, boxes++) {
          const node = row.node[box]!;
          assert.equal(graph.depth(node), depth);
          assert.deepEqual(rangeOf(graph, node), {from: row.x0[box], to: row.x1[box]});
          assert.ok(box === 0 || row.x0[box]! >= row.x1[box - 1]!);
          assert.equal(boxAt(row, row.x0[box]!), box);
          assert.equal(firstEndingAfter(row, row.x1[box]!), box + 1);
          assert.equal(pathTo(graph, node).length, depth);
        }
      }
      assert.equal(boxes, graph instanceof BottomUp ? graph.count : tree.name.length);
    }
  }
});

test('narrow siblings share a box that fills the rest', () => {
  const names: FrameName[] = [{function: 'root'}, ...Array.from({length: 400_000}, (_, at) => ({function: `f${at}`}))];
  const stacks: Stack[] = [{frames: [1], amounts: [1_000_000, 1]}];
  for (let at = 2; at <= 400_000; at++) stacks.push({frames: [at], amounts: [1, 1]});
  const graph = new TopDown(treeOf(columnsOf(stacks, names), 'function', 0));
  const rows = new Rows(graph);
  rows.ensure({from: 0, to: graph.width(0)}, graph.width(0) / 1000, 10);
  const row = rows.row(1)!;
  assert.equal(row.length, 2);
  assert.equal(row.node[1], NONE);
  assert.deepEqual([row.x0[1], row.x1[1]], [1_000_000, 1_399_999]);
  // Nearby, each has its own box.
  rows.ensure({from: 1_200_000, to: 1_200_100}, 0.1, 10);
  const near = rows.row(1)!;
  const box = boxAt(near, 1_200_050.5);
  assert.deepEqual([near.x0[box], near.x1[box]], [1_200_050, 1_200_051]);
  assert.ok(near.node[box] !== NONE && near.length < 300, `${near.length}`);
});

test('work that is late goes on later', () => {
  const tree = treeOf(columnsOf([{frames: Array.from({length: 100}, () => 1), amounts: [1, 1]}], NAMES), 'function', 0);
  const rows = new Rows(new TopDown(tree));
  let steps = 0;
  const all = {from: 0, to: 1};
  assert.ok(!rows.ensure(all, 0.01, 1000, () => ++steps > 30));
  assert.equal(rows.length, 31);
  assert.ok(rows.ensure(all, 0.01, 1000));
  assert.equal(rows.length, 101);
});

test('the share of matches counts each stack once', () => {
  const names = NAMES.map((name, at) => (at === 2 || at === 3 ? {function: `x${at}y`} : name));
  for (let seed = 0; seed < 40; seed++) {
    const stacks = randomStacks(random(seed), 7, 100, 8);
    const tree = treeOf(columnsOf(stacks, names), 'function', 0);
    const found = search(tree, 'X?Y');
    assert.ok(!('error' in found));
    const amount = (some: Stack[]): number => some.reduce((sum, {amounts}) => sum + amounts[0]!, 0);
    const matching = amount(stacks.filter(({frames}) => frames.includes(2) || frames.includes(3)));
    assert.equal(found.amount, matching);
    assert.equal(found.share, matching / amount(stacks));
    assert.equal(found.count, new Set(stacks.flatMap(({frames}) => frames.filter((at) => at === 2 || at === 3))).size);
  }
  const tree = treeOf(columnsOf([{frames: [1], amounts: [1, 1]}], NAMES), 'function', 0);
  assert.ok('error' in search(tree, `*${'a'.repeat(300)}`));
  const counted = (text: string): unknown => (search(tree, text) as {count: number}).count;
  assert.deepEqual(['a', 'A*', '/a/', '(\\w+)*!'].map(counted), [1, 1, 0, 0]);
});

test('no text to search for takes longer than the product of the lengths', () => {
  const tree = treeOf(columnsOf([{frames: [1], amounts: [1, 1]}], [{function: 'root'}, {function: 'a'.repeat(20_000)}]), 'function', 0);
  const started = process.cpuUsage();
  for (const text of ['/(\\w+)*\\!/', `${'a*'.repeat(99)}b`]) assert.ok(!('error' in search(tree, text)), text);
  // Tens of milliseconds are usual; a search that goes back and forth would not end.
  assert.ok(process.cpuUsage(started).user < 20e6);
});
