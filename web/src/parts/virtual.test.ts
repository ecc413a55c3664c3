import assert from 'node:assert/strict';
import test from 'node:test';

import {HEIGHT_MAX, scrollFor, visibleRows} from './virtual';

test('rows in view are few, and cover the view', () => {
  for (const rows of [0, 1, 10, 1000, 10_000_000]) {
    for (const scroll of [0, 7, 500, HEIGHT_MAX / 2, HEIGHT_MAX, 1e12]) {
      const {first, end, height} = visibleRows(rows, 24, 600, scroll);
      assert.ok(height <= HEIGHT_MAX);
      assert.ok(first >= 0 && first <= end && end <= rows, `${rows} ${scroll}: ${first}-${end}`);
      assert.ok(end - first <= 600 / 24 + 10);
      if (rows > 0) assert.ok(end > first);
    }
  }
});

test('each row can be scrolled to, also in lists that are too tall', () => {
  for (const rows of [100, 100_000, 5_000_000]) {
    let scroll = 0;
    for (const row of [0, 1, 50, rows - 1, rows >> 1, rows - 2, 0]) {
      scroll = scrollFor(row, rows, 24, 600, scroll);
      const {first, end} = visibleRows(rows, 24, 600, scroll);
      assert.ok(first <= row && row < end, `${row} of ${rows}: ${first}-${end}`);
    }
  }
});
