import assert from 'node:assert/strict';
import test from 'node:test';

import {readColumns} from '../flame/columns';
import {columnsOf} from '../flame/tests/model';
import {Store} from './saved';
import {bytesOf, chosen, treeAnswer} from './saved-tree';

const NAMES = ['', 'main', 'parse', 'push', '</script>'].map((one) => ({function: one, module: 'm'}));
const TREE = columnsOf([
  {frames: [1, 2, 3], amounts: [100, 2]}, {frames: [1, 3], amounts: [50, 1]}, {frames: [1, 4], amounts: [7, 3]}, {frames: [1, 2], amounts: [5, 1]},
], NAMES);

const BLOCKS = [
  JSON.stringify({rows: [1, 2, 3], rows_all: 7}), JSON.stringify({rows: [1], rows_all: 1}),
  JSON.stringify({rows: [{stack: {saved: 2}}, {stack: {saved: 0}}, {stack: 7}]}),
].map((text): Uint8Array => new TextEncoder().encode(text)).concat(bytesOf(TREE));

const session = {version: 1, heapledger: '0', files: [{id: 0, name: 'it\'s.hl', path: '/it\'s.hl', kind: 'recording', bytes: 1, verbs: ['top', 'tree', 'leaks', 'dmd'], processes: []}], memory: {bytes: 0, bound: 0}};
const store = new Store({
  session,
  answers: [
    {verb: 'top', options: [['file', '0'], ['by', 'type'], ['rows', '3']], block: 0, notes: ['…']},
    {verb: 'top', options: [['file', '0'], ['by', 'site'], ['rows', '3']], block: 1},
    {verb: 'dmd', options: [['file', '0']], error: {code: 'HL0090', message: 'it has no marks', causes: [], hint: 'record it'}},
    {verb: 'columns', options: [['file', '0'], ['total', '']], block: 3},
    {verb: 'leaks', options: [['file', '0']], block: 2},
  ],
  stacks: {frames: [{function: 'main'}, {function: 'f'}], frame: [0, 1, 1], parent: [-1, 0, 1]},
  cut: {share: 1e-6, answers: 2},
}, (number) => Promise.resolve(BLOCKS[number] as Uint8Array));

const answered = async (address: string): Promise<{status: number; value: Record<string, unknown>; notes: string[]}> => {
  const response = await store.answer(address);
  return {status: response.status, value: await response.json() as Record<string, unknown>, notes: JSON.parse(response.headers.get('heapledger-notes') ?? '') as string[]};
};

test('a question is found whatever the order of its options, with fewer rows than were saved', async () => {
  assert.deepEqual(await answered('api/ask/top?rows=3&by=type&file=0'), {status: 200, value: {rows: [1, 2, 3], rows_all: 7}, notes: ['…']});
  assert.deepEqual((await answered('api/ask/top?file=0&by=type&metric=bytes&rows=2')).value, {rows: [1, 2], rows_all: 7});
  assert.deepEqual((await answered('api/session')).value, session);
});

test('fewer rows than are wanted come with the command for all of them', async () => {
  const {value, notes} = await answered('api/ask/top?file=0&by=type&rows=9');
  assert.deepEqual(value['rows'], [1, 2, 3]);
  assert.match(notes.at(-1) as string, /the first 3 rows. All: heapledger top 'it'\\''s.hl' --by type --rows 9$/);
  assert.deepEqual((await answered('api/ask/top?file=0&by=site&rows=9')).notes, []);
});

test('a question without an answer is left to the recording', async () => {
  const {status, value} = await answered('api/ask/top?file=0&by=type&thread=7&rows=3');
  assert.equal(status, 404);
  assert.deepEqual(value['error'], {
    message: 'this file was saved with 5 answers, and the one to this question is not among them: ask the recording', causes: [],
    hint: "heapledger top 'it'\\''s.hl' --by type --thread 7 --rows 3",
  });
  const {message} = (await answered('api/ask/timeline?file=0')).value['error'] as {message: string};
  assert.equal(message, "`timeline` cannot be asked about `it's.hl`");
  const failed = await answered('api/ask/dmd?file=0');
  assert.deepEqual([failed.status, failed.value['error']], [422, {code: 'HL0090', message: 'it has no marks', causes: [], hint: 'record it'}]);
  assert.equal((await store.answer('api/columns?file=0&total=&function=/(/')).status, 404);
  assert.equal((await store.answer('api/columns?file=0&total=&module=m')).status, 404);
});

test('stacks are put back into answers', async () => {
  const [main, f] = [{function: 'main'}, {function: 'f'}];
  assert.deepEqual((await answered('api/ask/leaks?file=0')).value, {rows: [{stack: [f, f, main]}, {stack: [main]}, {stack: 7}]});
});

test('a tree is written as it is read', () => {
  assert.deepEqual(readColumns(bytesOf(TREE)), TREE);
});

test('functions are chosen in the tree, by parts, wildcards and expressions', async () => {
  const totals = (...options: [string, string][]): number[] | undefined => chosen(TREE, options)?.total;
  assert.deepEqual(totals(), [162, 7]);
  assert.deepEqual(totals(['function', 'par']), [105, 3]);
  assert.deepEqual(totals(['function', 'p?s*']), [150, 3]);
  assert.deepEqual(totals(['function', '/^p/'], ['not-function', 'parse']), [50, 1]);
  assert.deepEqual(totals(['not-function', 'p*']), [7, 3]);
  assert.deepEqual(totals(['function', 'nobody']), [0, 0]);
  const response = await store.answer('api/columns?file=0&total=&function=push');
  const tree = readColumns(new Uint8Array(await response.arrayBuffer()));
  assert.deepEqual([[...tree.depth], [...tree.name], tree.self.map((one) => [...one])], [[0, 1, 2, 3, 2], [0, 1, 2, 3, 3], [[0, 0, 0, 100, 50], [0, 0, 0, 2, 1]]]);
});

test('the tree is that of the verb', async () => {
  const {value} = await answered('api/ask/tree?file=0&total=&threshold=0.001%25');
  const nodes = (value['nodes'] as {depth: number; function: string; bytes: number; own: object}[]).map((node) => [node.depth, node.function, node.bytes, node.own]);
  assert.deepEqual(value['total'], {bytes: 162, blocks: 7});
  assert.deepEqual(nodes, [
    [0, 'main', 162, {bytes: 0, blocks: 0}], [1, 'parse', 105, {bytes: 5, blocks: 1}], [2, 'push', 100, {bytes: 100, blocks: 2}],
    [1, 'push', 50, {bytes: 50, blocks: 1}], [1, '</script>', 7, {bytes: 7, blocks: 3}],
  ]);
  const functions = (options: [string, string][]): string[] => (treeAnswer(TREE, options) as {nodes: {function: string}[]}).nodes.map((node) => node.function);
  assert.deepEqual(functions([['threshold', '40%']]), ['main', 'parse', 'push']);
  assert.deepEqual(functions([['threshold', '1%'], ['metric', 'blocks']]), ['main', 'parse', 'push', '</script>', 'push']);
  assert.equal(treeAnswer(TREE, [['metric', 'slop']]), undefined);
});
