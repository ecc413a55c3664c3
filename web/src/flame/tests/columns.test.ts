import assert from 'node:assert/strict';
import test from 'node:test';

import {ColumnsError, readColumns} from '../columns';
import {bytesOf, columnsOf, random, randomStacks} from './model';

const NAMES = [{function: 'root'}, {function: 'a', module: 'm'}, {function: 'b', file: '/x/b.c', line: 7}];

test('what the server writes is read', () => {
  const written = columnsOf(randomStacks(random(1), 3, 50, 5), NAMES);
  const read = readColumns(bytesOf(written));
  assert.deepEqual(read, written);
});

test('bytes that do not begin at a multiple of eight are read', () => {
  const bytes = bytesOf(columnsOf(randomStacks(random(2), 3, 50, 5), NAMES));
  const moved = new Uint8Array(bytes.length + 3).subarray(3);
  moved.set(bytes);
  assert.deepEqual(readColumns(moved), readColumns(bytes));
});

test('an answer that is cut anywhere is refused', () => {
  const bytes = bytesOf(columnsOf(randomStacks(random(3), 3, 5, 3), NAMES));
  for (let length = 0; length < bytes.length; length++) {
    assert.throws(() => readColumns(bytes.slice(0, length)), ColumnsError, `${length} of ${bytes.length}`);
  }
});

test('flipped bits are refused or read, and never fail otherwise', () => {
  const bytes = bytesOf(columnsOf(randomStacks(random(4), 3, 5, 3), NAMES));
  const next = random(5);
  let refused = 0;
  for (let turn = 0; turn < 5000; turn++) {
    const flipped = bytes.slice();
    flipped[next(bytes.length)]! ^= 1 << next(8);
    try {
      readColumns(flipped);
    } catch (error) {
      assert.ok(error instanceof ColumnsError, String(error));
      refused++;
    }
  }
  assert.ok(refused > 1000, `${refused}`);
});

test('errors name the offset and the reason', () => {
  const refused = (change: (columns: ReturnType<typeof columnsOf>) => void): ColumnsError => {
    const columns = columnsOf([{frames: [1, 2], amounts: [3, 1]}], [...NAMES]);
    change(columns);
    const bytes = bytesOf(columns);
    try {
      readColumns(bytes);
    } catch (error) {
      if (error instanceof ColumnsError) return error;
    }
    assert.fail('it was read');
  };
  const arrays = bytesOf(columnsOf([{frames: [1, 2], amounts: [3, 1]}], NAMES)).length - 2 * 16 - 2 * 24;
  assert.equal(
    refused(({depth}) => (depth[2] = 3)).message,
    `reading the call tree failed at byte ${arrays + 8}: node 2 has the impossible depth 3`,
  );
  assert.match(refused(({depth}) => (depth[0] = 1)).reason, /node 0 has the impossible depth 1/);
  assert.match(refused(({depth}) => (depth[1] = 0)).reason, /node 1 has the impossible depth 0/);
  assert.match(refused(({name}) => (name[2] = 9)).reason, /node 2 has name 9 of 3/);
  assert.match(refused(({self}) => (self[1]![1] = NaN)).reason, /node 1 has an amount/);
  assert.match(refused((columns) => (columns.metrics = [])).reason, /there are 0 metrics/);
  assert.match(refused((columns) => (columns.total = [1])).reason, /`total`/);
  assert.match(refused((columns) => (columns.names[1] = {function: 3 as unknown as string})).reason, /name 1/);
});

test('a number of nodes that no memory could hold is refused', () => {
  const bytes = bytesOf(columnsOf([{frames: [1], amounts: [3, 1]}], NAMES));
  const text = Buffer.from(bytes).toString('latin1').replace('"nodes":2', '"nodes":2000000000');
  const longer = Uint8Array.from(Buffer.from(text, 'latin1'));
  new DataView(longer.buffer).setUint32(8, new DataView(bytes.buffer).getUint32(8, true) + 9, true);
  assert.throws(() => readColumns(longer), /the answer ends before its 2000000000 nodes do/);
});
