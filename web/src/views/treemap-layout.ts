// The layout of the treemap: rectangles for rows, squarified by d3-hierarchy.

import {hierarchy, treemap, treemapSquarify} from 'd3-hierarchy';

import type {Row} from '../parts/rows';

export interface Tile {
  row: Row;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Returns a tile for each row that has any amount, with an area in proportion to it. */
export function tilesOf(rows: readonly Row[], amount: (row: Row) => number, width: number, height: number): Tile[] {
  interface Datum { row?: Row; children?: Datum[] }
  const root = hierarchy<Datum>({children: rows.filter((row) => amount(row) > 0).map((row) => ({row}))}).sum(({row}) => row === undefined ? 0 : amount(row)).sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
  const laid = treemap<Datum>().tile(treemapSquarify).size([width, height]).paddingInner(1).round(true)(root);
  return laid.leaves().flatMap(({data: {row}, x0, x1, y0, y1}) => row === undefined ? [] : [{row, x: x0, y: y0, width: x1 - x0, height: y1 - y0}]);
}

/** Returns the index of the tile at a point. */
export const tileAt = (tiles: readonly Tile[], x: number, y: number): number =>
  tiles.findIndex((tile) => x >= tile.x && x < tile.x + tile.width && y >= tile.y && y < tile.y + tile.height);
