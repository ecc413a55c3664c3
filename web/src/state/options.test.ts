import assert from 'node:assert/strict';
import test from 'node:test';

import type {Parameter} from './address';
import {commandText, isAskable, isComparison, optionsFor, quoted} from './options';

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

test('each verb gets the moment and the totals if it has such options', () => {
  const moment: Parameter[] = [['at', '1s'], ['total', '']];
  for (const verb of ['flame', 'callers', 'callees']) {
    assert.deepEqual(optionsFor(verb, moment), {options: [['file', '0'], ['total', '']], unused: []}, verb);
    assert.deepEqual(optionsFor(verb, [['at', '1s']]), {options: [['file', '0'], ['at', '1s']], unused: []}, verb);
  }
  for (const verb of ['rss', 'dmd']) {
    assert.deepEqual(optionsFor(verb, [...moment, ['process', '7'], ['function', 'f'], ['not-function', 'g'], ['function', 'h']]), {
      options: [['file', '0'], ['process', '7'], ['at', '1s']].sort(([a], [b]) => Number(b === 'file') - Number(a === 'file')),
      unused: ['“all that was ever allocated”', 'function', 'not function'],
    }, verb);
  }
  assert.deepEqual(optionsFor('heap/census', [['file', '1'], ['at', '1s'], ['type', 'Token'], ['during', '1s-2s']]), {
    options: [['file', '1']], unused: ['the moment', 'the range of time', 'type'],
  });
});

test('comparisons of other files get two, and verbs with words are not offered', () => {
  const two: Parameter[] = [['file', '1'], ['file', '2']];
  for (const verb of ['diff', 'heap/diff', 'reports/diff']) {
    assert.ok(isComparison(verb));
    assert.deepEqual(optionsFor(verb, two).options, two, verb);
  }
  assert.deepEqual(optionsFor('heap/census', two).options, [['file', '1']]);
  assert.deepEqual(['callers', 'heap/node', 'heap/paths', 'heap/diff', 'flame', 'rss'].map(isAskable), [false, false, false, true, true, true]);
});

test('a name of a file becomes one word of a shell', () => {
  assert.deepEqual(['a/b-1.hl', 'a.hl;curl x|sh', "it's", ''].map(quoted), ['a/b-1.hl', "'a.hl;curl x|sh'", String.raw`'it'\''s'`, "''"]);
});

test('the same question as a command is quoted for a shell', () => {
  const text = commandText('top', [['file', '0'], ['total', ''], ['function', "a'b c"]], () => "it's.hl");
  assert.equal(text, String.raw`heapledger top 'it'\''s.hl' --total --function 'a'\''b c'`);
});
