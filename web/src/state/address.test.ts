import assert from 'node:assert/strict';
import test from 'node:test';

import {chipsOf, exactPattern, isCut, narrowed, parsePlace, placeText, selectionOf, settingsOf, withValues, without, type Parameter} from './address';

test('an address is read as it was written', () => {
  const parameters: Parameter[] = [
    ['file', '0'], ['function', 'a&b=c#d?e/é<img src=x onerror=alert(1)>'], ['total', ''], ['by', 'type'],
  ];
  const place = {view: 'table', parameters};
  assert.deepEqual(parsePlace(placeText(place), 'summary'), place);
});

test('hostile addresses lead to the usual view', () => {
  for (const hash of ['', '#', '#/', '#/../../x', '#/<script>', `#/${'a'.repeat(100)}`, '#?x']) {
    assert.equal(parsePlace(hash, 'summary').view, 'summary', hash);
  }
  assert.deepEqual(parsePlace('#/table?%zz=%', 'summary').parameters, [['%zz', '%']]);
  const long = parsePlace(`#/table?${'a=b&'.repeat(100_000)}`, 'summary');
  assert.ok(long.parameters.length <= 8192);
});

test('a long address is cut between parameters', () => {
  const pattern = `/^${'a'.repeat(20_000)}$/`;
  const hash = placeText({view: 'table', parameters: [['type', pattern], ['function', pattern], ['by', 'type']]});
  assert.ok(isCut(hash));
  assert.deepEqual(parsePlace(hash, 'summary'), {view: 'table', parameters: [['type', pattern]]});
  assert.deepEqual(parsePlace(`#/table?type=${'a'.repeat(40_000)}`, 'summary'), {view: 'table', parameters: []});
  assert.ok(!isCut('#/table?type=a'));
});

test('conditions of one kind stand beside each other, or replace each other', () => {
  let all: Parameter[] = narrowed([['by', 'type']], 'function', 'f');
  all = narrowed(all, 'function', 'g');
  all = narrowed(all, 'function', 'g');
  all = narrowed(narrowed(all, 'at', 'peak'), 'at', '1s');
  assert.deepEqual(all, [['by', 'type'], ['function', 'f'], ['function', 'g'], ['at', '1s']]);
  assert.deepEqual(without(all, ['function', 'f']), [['by', 'type'], ['function', 'g'], ['at', '1s']]);
  assert.deepEqual(selectionOf(all), [['at', '1s'], ['function', 'f'], ['function', 'g']]);
  assert.deepEqual(settingsOf(all), [['by', 'type']]);
  assert.deepEqual(withValues(all, {function: ['h'], at: undefined}), [['by', 'type'], ['function', 'h']]);
});

test('chips say what is chosen', () => {
  const labels = (...parameters: Parameter[]): string[] => chipsOf(parameters).map((chip) => chip.label);
  assert.deepEqual(labels(['file', '0'], ['at', 'peak']), ['at the peak']);
  assert.deepEqual(labels(['during', '1s-2s']), ['allocated within 1s-2s and live at its end']);
  assert.deepEqual(labels(['during', '1s-2s'], ['total', '']), ['allocated within 1s-2s']);
  assert.deepEqual(labels(['total', ''], ['not-function', 'f']), ['all that was ever allocated', 'not function f']);
  const [chip] = chipsOf([['during', '1s-2s'], ['total', ''], ['thread', '3']]);
  assert.deepEqual(chip?.parameters, [['during', '1s-2s'], ['total', '']]);
});

test('a pattern for a name matches that name alone', () => {
  for (const name of ['f', 'operator()', 'a*b?', 'x[0].y|z', 'a/b\\c', '^$']) {
    const pattern = exactPattern(name);
    const expression = new RegExp(pattern.slice(1, -1));
    assert.ok(expression.test(name), pattern);
    assert.ok(!expression.test(`${name}x`) && !expression.test(`x${name}`), pattern);
  }
});
