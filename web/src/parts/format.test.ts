import assert from 'node:assert/strict';
import test from 'node:test';

import {baseName, bytes, count, parseTime, seconds, share, signed, timeOption} from './format';

test('amounts of memory are those of the command', () => {
  // `heapledger summary` printed 30.9 MiB, 1.2 MiB and 8.0 KiB for these.
  assert.deepEqual([32_390_437, 1_306_794, 8216].map((value) => bytes(value, 'binary')), ['30.9 MiB', '1.2 MiB', '8.0 KiB']);
  assert.deepEqual([0, 1, 999, 1000, 999_950].map((value) => bytes(value, 'decimal')), ['0 B', '1 B', '999 B', '1.0 kB', '1.0 MB']);
  assert.deepEqual([0, 1023, 1024, -2048].map((value) => bytes(value, 'binary')), ['0 B', '1,023 B', '1.0 KiB', '−2.0 KiB']);
  assert.equal(bytes(1024 * 1024 - 1, 'binary'), '1.0 MiB');
  assert.equal(bytes(2 ** 64, 'binary'), '16.0 EiB');
  assert.equal(bytes(1_234_567, 'bytes'), '1,234,567');
  assert.equal(bytes(NaN, 'binary'), '–');
});

test('counts have commas', () => {
  assert.deepEqual([0, 999, 1000, 1_234_567, -1000].map(count), ['0', '999', '1,000', '1,234,567', '−1,000']);
  assert.equal(count(2 ** 53), '9,007,199,254,740,992');
});

test('changes have signs, except for none', () => {
  assert.deepEqual(['0', '0 B', '5', '1.0 KiB', '−3'].map(signed), ['0', '0 B', '+5', '+1.0 KiB', '−3']);
});

test('shares of almost nothing are not nothing', () => {
  assert.deepEqual([0, 1, 0.5, 0.0001, -0.25].map(share), ['0.0 %', '100.0 %', '50.0 %', '< 0.1 %', '−25.0 %']);
});

test('times have the unit that fits', () => {
  assert.deepEqual([0, 1.394846799, 0.0123, 5e-6, 90, 7200].map(seconds), ['0 s', '1.39 s', '12.3 ms', '5.00 µs', '1.50 min', '2.00 h']);
});

test('times for the verbs are exact, and read back', () => {
  for (const value of [0, 0.5, 1.100649133, 1e-9, 123456.789]) assert.equal(parseTime(timeOption(value)), value);
  assert.equal(parseTime('200ms'), 0.2);
  for (const text of ['', 's', '1', '1x', '-1s', '1e5s', '1 s']) assert.equal(parseTime(text), undefined, text);
});

test('the last part of a path', () => {
  assert.deepEqual(['/a/b.so', 'b.so', '/', ''].map(baseName), ['b.so', 'b.so', '/', '']);
});
