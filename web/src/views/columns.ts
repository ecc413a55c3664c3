// The columns of tables of rows.

import {rowMore, rowName, type Row} from '../parts/rows';
import type {Column} from '../parts/table-model';

const amount = (id: keyof Row & ('bytes' | 'blocks' | 'temporary' | 'slop' | 'sites'), label: string, kind: 'bytes' | 'blocks'): Column<Row> => ({
  id, label, kind, value: (row) => { const value = row[id]; return typeof value === 'number' ? value : null; },
});

const SHARE: Column<Row> = {id: 'share', label: 'share', kind: 'share', value: (row) => row.share ?? null};

/** Returns the columns of a ranking: the metric first, then the other amounts, then names. */
export function rankColumns(by: string, metric: string, rows: readonly Row[]): Column<Row>[] {
  const has = (id: keyof Row): boolean => rows.some((row) => typeof row[id] === 'number');
  const amounts: Column<Row>[] = [
    ...(has('temporary') ? [amount('temporary', 'temporary', 'blocks')] : []),
    ...(has('slop') ? [amount('slop', 'slop', 'bytes')] : []),
    ...(has('bytes') ? [amount('bytes', 'bytes', 'bytes')] : []),
    ...(has('blocks') ? [amount('blocks', 'blocks', 'blocks')] : []),
  ];
  amounts.sort((a, b) => Number(b.id === metric) - Number(a.id === metric));
  return [
    ...amounts.slice(0, 1), SHARE, ...amounts.slice(1),
    ...(has('sites') ? [amount('sites', 'sites', 'blocks')] : []),
    {id: 'name', label: by, kind: 'text', value: (row) => rowName(row, by), more: (row) => rowMore(row, by)},
  ];
}
