// Tables as data: columns, rows in an order, and their text. What is drawn and what is copied is
// made of the same cells.

import {csvCell} from './csv';
import {bytes, count, seconds, share, signed, type Units} from './format';

export type CellKind = 'bytes' | 'blocks' | 'share' | 'seconds' | 'text' | 'growth' | 'growth-blocks';

/** A column of rows of one type. */
export interface Column<Row> {
  /** Its name in an address and in JSON. */
  id: string;
  label: string;
  kind: CellKind;
  value: (row: Row) => number | string | null;
  /** A second text, less important, shown behind that of the cell. */
  more?: (row: Row) => string;
}

export interface Sort {
  column: string;
  isDescending: boolean;
}

/** Returns the text of a cell as it is shown. */
export function cellText(value: number | string | null, kind: CellKind, units: Units): string {
  if (value === null) return '';
  if (typeof value === 'string') return value;
  switch (kind) {
    case 'bytes': return bytes(value, units);
    case 'growth': return signed(bytes(value, units));
    case 'growth-blocks': return signed(count(value));
    case 'share': return share(value);
    case 'seconds': return seconds(value);
    default: return count(value);
  }
}

/** True for columns that are aligned to the right. */
export const isNumber = (kind: CellKind): boolean => kind !== 'text';

/** Returns the rows that contain all words of a filter, in the order of a column. */
export function arranged<Row>(
  rows: readonly Row[], columns: readonly Column<Row>[], filter: string, sort: Sort | undefined,
): Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== '');
  const texts = columns.filter((column) => column.kind === 'text');
  const kept = words.length === 0 ? [...rows] : rows.filter((row) => {
    const text = texts.map((column) => `${column.value(row) ?? ''} ${column.more?.(row) ?? ''}`).join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const column = columns.find(({id}) => id === sort?.column);
  if (sort === undefined || column === undefined) return kept;
  const sign = sort.isDescending ? -1 : 1;
  // Sorting is stable: equal rows stay in the order of the answer. Empty cells come last.
  return kept.map((row) => ({row, value: column.value(row)})).sort((a, b) => {
    if (a.value === null || b.value === null) return (a.value === null ? 1 : 0) - (b.value === null ? 1 : 0);
    if (typeof a.value === 'number' && typeof b.value === 'number') return sign * (a.value - b.value);
    const [left, right] = [String(a.value), String(b.value)];
    return sign * (left < right ? -1 : left > right ? 1 : 0);
  }).map(({row}) => row);
}

/** Returns the order after a click on a column: numbers begin with the largest, texts with a. */
export function sortedBy<Row>(column: Column<Row>, before: Sort | undefined): Sort {
  if (before?.column === column.id) return {column: column.id, isDescending: !before.isDescending};
  return {column: column.id, isDescending: isNumber(column.kind)};
}

export const sortText = (sort: Sort): string => `${sort.isDescending ? '-' : ''}${sort.column}`;
export const parseSort = (text: string | undefined): Sort | undefined =>
  text === undefined || text === '' ? undefined : {column: text.replace(/^-/, ''), isDescending: text.startsWith('-')};

function fullText<Row>(column: Column<Row>, row: Row): string {
  const more = column.more?.(row) ?? '';
  return `${column.value(row) ?? ''}${more === '' ? '' : `  ${more}`}`;
}

/** Returns a table as aligned text, as the command prints it. */
export function asText<Row>(rows: readonly Row[], columns: readonly Column<Row>[], units: Units): string {
  const lines = [
    columns.map(({label}) => label),
    ...rows.map((row) => columns.map((column) => column.kind === 'text'
      ? fullText(column, row).replace(/\s*\n\s*/g, ' ') : cellText(column.value(row), column.kind, units))),
  ];
  const widths = columns.map((_, at) => lines.reduce((most, line) => Math.max(most, line[at]?.length ?? 0), 0));
  return lines.map((line) => line.map((cell, at) => {
    const column = columns[at];
    const width = widths[at] ?? 0;
    return column !== undefined && isNumber(column.kind) ? cell.padStart(width) : cell.padEnd(width);
  }).join('  ').trimEnd()).join('\n') + '\n';
}

/** Returns a table as CSV (RFC 4180), numbers in full. */
export function asCsv<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const lines = [columns.map(({id}) => id), ...rows.map((row) => columns.map((column) =>
    csvCell(column.kind === 'text' ? fullText(column, row) : column.value(row))))];
  return lines.map((line) => `${line.join(',')}\r\n`).join('');
}

/** Returns a table as JSON: an object for each row. */
export function asJson<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  return `${JSON.stringify(rows.map((row) => Object.fromEntries(columns.map((column) => [column.id, column.value(row)]))), null, 2)}\n`;
}
