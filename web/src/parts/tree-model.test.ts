import assert from 'node:assert/strict';
import test from 'node:test';

import {childrenOf, heaviestPath, levelOf, matches, nodeName, shownNodes, treeOf, type TreeNode} from './tree-model';

const node = (depth: number, name: string, bytes = 1): TreeNode => ({depth, function: name, bytes, blocks: 1});
const SMALL = treeOf([node(0, 'main', 10), node(1, 'parse', 8), node(2, 'word', 5), node(2, 'line', 3), node(1, 'print', 2), node(0, 'thread', 1)]);
const names = (indexes: readonly number[]): string[] => indexes.map((index) => nodeName(SMALL.nodes[index] as TreeNode));

test('only what is below open nodes is shown', () => {
  assert.deepEqual(names(shownNodes(SMALL, () => false)), ['main', 'thread']);
  assert.deepEqual(names(shownNodes(SMALL, () => true)), ['main', 'parse', 'word', 'line', 'print', 'thread']);
  const only = SMALL.keys[0];
  assert.deepEqual(names(shownNodes(SMALL, (key) => key === only)), ['main', 'parse', 'print', 'thread']);
  assert.deepEqual(names(childrenOf(SMALL, 0)), ['parse', 'print']);
  assert.equal(levelOf(SMALL, 3), 2);
});

test('the heaviest path is open at first', () => {
  const opened = heaviestPath(SMALL);
  assert.deepEqual(names(shownNodes(SMALL, (key) => opened.has(key))), ['main', 'parse', 'word', 'line', 'print', 'thread']);
  assert.equal(heaviestPath(treeOf([])).size, 0);
});

test('the same path has the same key in another tree', () => {
  const other = treeOf([node(0, 'thread'), node(0, 'main'), node(1, 'print'), node(1, 'parse')]);
  assert.equal(other.keys[1], SMALL.keys[0]);
  assert.equal(other.keys[3], SMALL.keys[1]);
  assert.notEqual(SMALL.keys[2], SMALL.keys[3]);
  assert.equal(new Set(SMALL.keys).size, 6);
});

test('chains of only children are not indented', () => {
  const chain = treeOf([node(0, 'main'), node(1, 'run'), node(2, 'a'), node(3, 'b'), node(2, 'c'), node(0, 'thread')]);
  assert.deepEqual([...chain.indents], [0, 0, 1, 1, 1, 0]);
});

test('a search shows matches and what is above them', () => {
  const {found, shown} = matches(SMALL, 'LINE');
  assert.deepEqual(names([...found]), ['line']);
  assert.deepEqual(names(shown), ['main', 'parse', 'line']);
  assert.deepEqual(matches(SMALL, 'nonsense').shown, []);
});

test('a stack of 100,000 frames is no problem, nor are depths that make no sense', () => {
  const deep = treeOf(Array.from({length: 100_000}, (_, depth) => node(depth, `f${depth % 100}`)));
  assert.equal(shownNodes(deep, () => true).length, 100_000);
  assert.equal(levelOf(deep, 99_999), 99_999);
  assert.equal(matches(deep, 'f99').found.size, 1000);
  const odd = treeOf([node(5, 'a'), node(-3, 'b'), node(9, 'c'), node(9, 'd')]);
  assert.equal(shownNodes(odd, () => true).length, 4);
});
