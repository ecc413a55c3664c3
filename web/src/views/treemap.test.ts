import assert from 'node:assert/strict';
import test from 'node:test';

import type {Row} from '../parts/rows';
import {tileAt, tilesOf} from './treemap-layout';

const rows: Row[] = [600, 300, 0, 100].map((bytes, at) => ({type: `t${at}`, bytes}));

test('areas are in proportion to bytes, and fill the room', () => {
  const tiles = tilesOf(rows, (row) => row.bytes ?? 0, 1000, 500);
  assert.deepEqual(tiles.map(({row}) => row.type), ['t0', 't1', 't3']);
  for (const {row, width, height} of tiles) {
    assert.ok(Math.abs((width * height) / 500 - (row.bytes ?? 0)) < 10, `${row.type}: ${width} × ${height}`);
  }
});

test('each tile is found at its middle', () => {
  const tiles = tilesOf(rows, (row) => row.bytes ?? 0, 800, 300);
  tiles.forEach(({x, y, width, height}, at) => assert.equal(tileAt(tiles, x + width / 2, y + height / 2), at));
  assert.equal(tileAt(tiles, -1, 10), -1);
  assert.deepEqual(tilesOf([], () => 1, 100, 100), []);
});
