import assert from 'node:assert/strict';
import test from 'node:test';

import {isOwners, rowCondition, rowMore, rowName, type Row} from './rows';

const OWNER = {function: 'serve', module: '/usr/bin/server', file: 'src/server.c', line: 7};

test('a group by function is named after the function, and not after an owner', () => {
  const row: Row = {function: 'grow', file: 'src/list.c', line: 3, owner: OWNER, via: {function: 'push'}};
  assert.deepEqual([rowName(row, 'function'), rowMore(row, 'function')], ['grow', 'src/list.c:3']);
  assert.deepEqual(rowCondition(row, 'function'), ['allocated-by', '/^grow$/']);
  assert.deepEqual([rowName(row, 'owner'), rowMore(row, 'owner')], ['serve', 'src/server.c:7, via push']);
  assert.deepEqual(rowCondition(row, 'owner'), ['allocated-by', '/^serve$/']);
});

test('a group by source file is named after the file', () => {
  const row: Row = {function: 'serve', file: 'src/server.c', line: 7, owner: OWNER};
  assert.deepEqual([rowName(row, 'file'), rowMore(row, 'file'), rowCondition(row, 'file')], ['src/server.c', '', undefined]);
  assert.equal(rowName({function: 'serve', file: null, owner: {function: 'serve', file: null}}, 'file'), '(unknown file)');
  assert.equal(rowCondition(row, 'line'), undefined);
});

test('a site is named after its owner, whatever its context and heap', () => {
  const row: Row = {function: 'serve', owner: OWNER, context: [{name: 'request', value: '7'}], heap: 'images'};
  for (const by of ['site', 'stack']) {
    assert.deepEqual([rowName(row, by), rowMore(row, by)], ['serve', 'src/server.c:7, in request{7}, of heap images']);
    assert.deepEqual([rowCondition(row, by), isOwners(by)], [['allocated-by', '/^serve$/'], true]);
  }
  assert.ok(!isOwners('owner') && !isOwners('function'));
});

test('conditions for scopes and heaps choose their rows alone', () => {
  const task = {name: 'request', value: 'route=/a'};
  assert.equal(rowName({task}, 'task'), 'request{route=/a}');
  assert.deepEqual(rowCondition({task}, 'task'), ['context', String.raw`/^request\{route=\/a\}$/`]);
  assert.equal(rowName({task: {name: 'idle', value: null}}, 'task'), 'idle');
  assert.deepEqual([rowName({task: null}, 'task'), rowCondition({task: null}, 'task')], ['(no task)', undefined]);

  const context = [{name: 'a', value: null}, {name: 'b', value: ''}];
  assert.equal(rowName({context}, 'context'), 'a > b{}');
  assert.deepEqual(rowCondition({context}, 'context'), ['context', String.raw`/^a > b\{\}$/`]);
  assert.deepEqual([rowName({context: []}, 'context'), rowCondition({context: []}, 'context')], ['(no context)', ['context', String.raw`/^\(no context\)$/`]]);
  assert.deepEqual(rowCondition({scope: 'a*'}, 'scope'), ['context', String.raw`/^a\*$/`]);
  assert.deepEqual(rowCondition({heap: 'img'}, 'heap'), ['heap', '/^img$/']);
  assert.deepEqual([rowName({heap: null}, 'heap'), rowCondition({heap: null}, 'heap')], ['(no heap)', ['heap', String.raw`/^\(no heap\)$/`]]);
});
