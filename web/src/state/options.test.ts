import assert from 'node:assert/strict';
import test from 'node:test';

import type {Parameter} from './address';
import {commandText, optionsFor} from './options';

const SELECTION: Parameter[] = [
  ['by', 'type'], ['file', '1'], ['file', '2'], ['at', '1s'], ['during', '1s-2s'], ['function', 'f'],
];

test('a verb gets what it knows of the selection, and the rest is said', () => {
  assert.deepEqual(optionsFor('top', SELECTION), {
    options: [['file', '1'], ['at', '1s'], ['during', '1s-2s'], ['function', 'f']], unused: [],
  });
  assert.deepEqual(optionsFor('advise', SELECTION), {
    options: [['file', '1'], ['function', 'f']], unused: ['the moment', 'the range of time'],
  });
  assert.deepEqual(optionsFor('diff', SELECTION).options.slice(0, 2), [['file', '1'], ['file', '2']]);
  assert.deepEqual(optionsFor('top', []).options, [['file', '0']]);
});

test('only a comparison has two moments', () => {
  const two: Parameter[] = [['at', '1s'], ['at', '2s']];
  assert.deepEqual(optionsFor('tree', two).options, [['file', '0'], ['at', '2s']]);
  assert.deepEqual(optionsFor('diff', two).options, [['file', '0'], ['at', '1s'], ['at', '2s']]);
});

test('all that was ever allocated has no moment', () => {
  const total: Parameter[] = [...SELECTION, ['total', '']];
  assert.ok(!optionsFor('top', total).options.some(([name]) => name === 'at'));
  assert.deepEqual(optionsFor('leaks', total).unused, ['“all that was ever allocated”']);
});

test('the same question as a command is quoted for a shell', () => {
  const text = commandText('top', [['file', '0'], ['total', ''], ['function', "a'b c"]], () => "it's.hl");
  assert.equal(text, String.raw`heapledger top 'it'\''s.hl' --total --function 'a'\''b c'`);
});
