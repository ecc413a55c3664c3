import assert from 'node:assert/strict';
import test from 'node:test';

import {AFTER, BEFORE} from '../difference';
import type {FrameName} from '../columns';
import {BottomUp, TopDown} from '../graph';
import {FIRST_STATE, nodeOnPath, pathText, stateOf, stateParameters, type FlameState} from '../state';
import {transformed, type Transform} from '../transforms';
import {treeOf} from '../tree';
import {Bench, serve, Workshop, type Delivery, type Order} from '../workshop';
import {bytesOf, columnsOf, random, randomStacks, selves} from './model';

const NAMES: FrameName[] = [{function: 'root'}, ...['a', 'b', 'c', 'd', 'e', 'f'].map((name) => ({function: name}))];

test('the state is the same after a way through an address', () => {
  const state: FlameState = {
    metric: 'blocks',
    orientation: 'flame',
    bottomUp: true,
    merge: 'module',
    changes: [
      {kind: 'focus', function: 'a&b=c d+e%20#:'},
      {kind: 'recursion', calls: 'all'},
    ],
    search: '/x|y/',
    colors: 'growth',
    zoom: '1a.2b',
    sandwich: 'std::vec<é>',
  };
  const address = new URLSearchParams(stateParameters(state)).toString();
  assert.deepEqual(stateOf(new URLSearchParams(address)), state);
  assert.deepEqual(stateParameters(FIRST_STATE), []);
  assert.deepEqual(stateOf(new URLSearchParams('merge=x&orientation=y&change=z&colors=q')), FIRST_STATE);
});

test('a way leads to the same frames in another tree, or as far as there are some', () => {
  for (let seed = 0; seed < 20; seed++) {
    const stacks = randomStacks(random(seed), 7, 80, 7);
    const tree = treeOf(columnsOf(stacks, NAMES), 'function', 0);
    const other = treeOf(columnsOf(stacks.toReversed(), NAMES), 'function', 1);
    for (const [graph, same] of [
      [new TopDown(tree), new TopDown(other)],
      [BottomUp.ofTree(tree), BottomUp.ofTree(other)],
    ] as const) {
      const namesOf = (of: typeof graph, node: number): number[] => {
        const names: number[] = [];
        for (let here = node; here !== 0; here = of.parent(here)) names.push(of.name(here));
        return names;
      };
      let node = 0;
      for (let child = graph.firstChild(0); child >= 0; child = graph.firstChild(node)) {
        node = child;
        const found = nodeOnPath(same, pathText(graph, node));
        assert.deepEqual(namesOf(same, found), namesOf(graph, node));
      }
      const path = pathText(graph, node);
      assert.equal(nodeOnPath(graph, `${path}.zzzz.1`), node);
    }
  }
});

test('two trees are compared node by node', () => {
  const before = [
    {frames: [1, 2], amounts: [10, 1]},
    {frames: [3], amounts: [5, 1]},
  ];
  const after = [
    {frames: [1, 2], amounts: [7, 2]},
    {frames: [1, 4], amounts: [9, 1]},
  ];
  const bench = new Bench();
  // The second side numbers its names in another way.
  const renamed = [NAMES[0]!, NAMES[1]!, NAMES[4]!, NAMES[5]!, NAMES[2]!];
  const moved = after.map(({frames, amounts}) => ({frames: frames.map((at) => [0, 1, 4, 0, 2][at]!), amounts}));
  const head = bench.load(bytesOf(columnsOf(moved, renamed)), bytesOf(columnsOf(before, NAMES)));
  assert.deepEqual(head.metrics, [`${BEFORE}bytes`, `${AFTER}bytes`, `${BEFORE}blocks`, `${AFTER}blocks`]);
  const tree = bench.make({by: 'function', transforms: [], width: [0, 1]});
  assert.deepEqual(Object.fromEntries(selves(tree)), {'1 2': [10, 7, 1, 2], '1 4': [0, 9, 0, 1], '3': [5, 0, 1, 0]});
  assert.equal(tree.width[0], 10 + 9 + 5);
});

test('changes are made to functions before these are merged by modules', () => {
  const names = [{function: 'root'}, ...['a', 'b', 'c'].map((name, at) => ({function: name, module: `m${at >> 1}`}))];
  const bench = new Bench();
  const stacks = [[1, 2], [2, 3], [3, 1, 3]].map((frames, at) => ({frames, amounts: [10 ** at, 1]}));
  bench.load(bytesOf(columnsOf(stacks, names)));
  const made = (transforms: Transform[]): object => Object.fromEntries(selves(bench.make({by: 'module', transforms, width: 0})));
  assert.deepEqual(made([]), {'1': [1, 1], '1 3': [10, 1], '3 1 3': [100, 1]});
  assert.deepEqual(made([{kind: 'focus', function: 'b'}]), {'1': [1, 1], '1 3': [10, 1]});
  assert.deepEqual(made([{kind: 'recursion', calls: 'all'}]), {'1': [1, 1], '1 3': [10, 1], '3': [100, 1]});
});

test('without a worker the page does the work', async () => {
  const bytes = bytesOf(columnsOf(randomStacks(random(1), 7, 20_000, 12), NAMES));
  const refused = (): Worker => {
    throw new Error('refused by the policy');
  };
  // A worker whose program cannot be loaded says so after it was made.
  const silent = (): Worker => {
    const worker = {onerror: null as ((event: object) => void) | null, postMessage: () => {}};
    queueMicrotask(() => worker.onerror!({message: '', preventDefault: () => {}}));
    return worker as unknown as Worker;
  };
  for (const makeWorker of [refused, silent]) {
    const workshop = new Workshop(makeWorker);
    const head = await workshop.load(bytes);
    const tree = await workshop.make('view', {by: 'function', transforms: [], width: 0});
    assert.equal(tree?.total[0]![0], head.total[0]);
  }
});

test('a worker makes the same trees, and leaves out what is outdated', async () => {
  const names: FrameName[] = [{function: 'root'}, ...Array.from({length: 6}, (_, at) => ({function: `f${at}`}))];
  const columns = columnsOf(randomStacks(random(1), 7, 20_000, 12), names);
  const bytes = bytesOf(columns);
  assert.ok(bytes.length > 1 << 20, `${bytes.length}`);
  let orders = 0;
  // A worker of this thread: messages are copied as between threads.
  const started = (): Worker => {
    const worker = {onmessage: null as ((event: {data: Delivery}) => void) | null, postMessage: (_: Order) => {}};
    const scope: Parameters<typeof serve>[0] = {
      onmessage: null,
      postMessage: (message, transfer) => {
        const data = structuredClone(message, {transfer});
        queueMicrotask(() => worker.onmessage!({data}));
      },
    };
    serve(scope);
    worker.postMessage = (order) => {
      orders++;
      const data = structuredClone(order);
      queueMicrotask(() => scope.onmessage!({data} as MessageEvent<Order>));
    };
    return worker as unknown as Worker;
  };
  const workshop = new Workshop(started);
  assert.equal((await workshop.load(bytes)).nodes, columns.depth.length);
  const plain = {by: 'function', transforms: [], width: 0} as const;
  const tree = treeOf(columns, 'function', 0);
  assert.deepEqual(await workshop.make('view', plain), tree);
  const collapsed = {...plain, transforms: [{kind: 'recursion', calls: 'all'}]} as const;
  const all = await Promise.all([plain, plain, plain, collapsed].map((wanted) => workshop.make('view', wanted)));
  assert.deepEqual(all.slice(0, 3), [undefined, undefined, undefined]);
  assert.deepEqual(all[3], transformed(tree, collapsed.transforms, 0));
  assert.equal(orders, 3, 'the orders between the first and the last were not given');
  // The worker keeps other arrays than those that it gave away for the changes.
  assert.deepEqual(await workshop.make('view', plain), tree);
  await assert.rejects(workshop.load(new Uint8Array(1 << 20)), /does not begin with HLCOLS01/);
});
