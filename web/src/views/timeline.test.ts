import assert from 'node:assert/strict';
import test from 'node:test';

import {joined, stacked, thinned, valueAt} from './timeline-columns';
import type {LivePoint} from './timeline-model';

const points = (amounts: readonly number[]): LivePoint[] => amounts.map((bytes, at) => ({time_seconds: at, bytes, blocks: 1}));

test('fewer points keep the peak, the least, both ends and the order', () => {
  const amounts = Array.from({length: 100_000}, (_, at) => 1000 + (at * 7919) % 501);
  amounts[55_555] = 99_999;
  amounts[77_777] = 1;
  const few = thinned(points(amounts), 2000);
  assert.ok(few.length <= 2000);
  assert.ok(few.some(({bytes, time_seconds: time}) => bytes === 99_999 && time === 55_555));
  assert.ok(few.some(({bytes}) => bytes === 1));
  assert.deepEqual([few[0]?.time_seconds, few.at(-1)?.time_seconds], [0, 99_999]);
  assert.ok(few.every((point, at) => at === 0 || point.time_seconds > (few[at - 1] as LivePoint).time_seconds));
  assert.equal(thinned(points([1, 2, 3]), 2000).length, 3);
});

test('the value at a time is that of the point before it', () => {
  const three = points([10, 20, 30]);
  assert.deepEqual([-1, 0, 0.5, 1, 9].map((time) => valueAt(three, time)?.bytes), [undefined, 10, 10, 20, 30]);
});

test('bands are sums, and end at the total', () => {
  assert.deepEqual(stacked([[1, 2], [3, 4], [5, 6]]), [[1, 2], [4, 6], [9, 12]]);
  assert.deepEqual(stacked([]), []);
});

test('curves with times of their own share an axis', () => {
  assert.deepEqual(joined([{times: [1, 3], values: [10, 30]}, {times: [2, 3], values: [5, 6]}]), {
    times: [1, 2, 3], columns: [[10, null, 30], [null, 5, 6]],
  });
});
