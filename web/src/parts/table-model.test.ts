import assert from 'node:assert/strict';
import test from 'node:test';

import {arranged, asCsv, asJson, asText, parseSort, sortedBy, sortText, type Column} from './table-model';

interface Row { name: string; bytes: number; age: number | null }
const COLUMNS: Column<Row>[] = [
  {id: 'bytes', label: 'bytes', kind: 'bytes', value: (row) => row.bytes},
  {id: 'age', label: 'age', kind: 'seconds', value: (row) => row.age},
  {id: 'name', label: 'name', kind: 'text', value: (row) => row.name, more: (row) => `${row.name}.c`},
];
const ROWS: Row[] = [
  {name: 'parse', bytes: 2048, age: null},
  {name: 'a,"b"', bytes: 10, age: 1},
  {name: '=cmd()', bytes: 2048, age: 0.5},
];
const names = (rows: Row[]): string[] => rows.map(({name}) => name);

test('rows are sorted by numbers or texts, and equal ones keep their order', () => {
  const sorted = (text: string): string[] => names(arranged(ROWS, COLUMNS, '', parseSort(text)));
  assert.deepEqual(sorted('-bytes'), ['parse', '=cmd()', 'a,"b"']);
  assert.deepEqual(sorted('bytes'), ['a,"b"', 'parse', '=cmd()']);
  assert.deepEqual(sorted('name'), ['=cmd()', 'a,"b"', 'parse']);
  assert.deepEqual(sorted('age'), ['=cmd()', 'a,"b"', 'parse']);
  assert.deepEqual(sorted('-age'), ['a,"b"', '=cmd()', 'parse']);
  assert.deepEqual(sorted('nonsense'), names(ROWS));
});

test('a filter takes rows with all of its words, in any case', () => {
  assert.deepEqual(names(arranged(ROWS, COLUMNS, ' PAR  .c ', undefined)), ['parse']);
  assert.deepEqual(names(arranged(ROWS, COLUMNS, 'parse cmd', undefined)), []);
  assert.equal(arranged(ROWS, COLUMNS, '', undefined).length, 3);
});

test('a click sorts, another one turns the order', () => {
  const [bytes, , name] = COLUMNS;
  assert.ok(bytes !== undefined && name !== undefined);
  const first = sortedBy(bytes, undefined);
  assert.equal(sortText(first), '-bytes');
  assert.equal(sortText(sortedBy(bytes, first)), 'bytes');
  assert.equal(sortText(sortedBy(name, first)), 'name');
  assert.deepEqual(parseSort('-bytes'), first);
});

test('a table is copied as aligned text', () => {
  assert.equal(asText(ROWS, COLUMNS, 'binary'), [
    '  bytes     age  name',
    '2.0 KiB          parse  parse.c',
    '   10 B  1.00 s  a,"b"  a,"b".c',
    '2.0 KiB  500 ms  =cmd()  =cmd().c',
    '',
  ].join('\n'));
});

test('CSV is quoted, and no formula', () => {
  assert.equal(asCsv(ROWS, COLUMNS), [
    'bytes,age,name', '2048,,parse  parse.c', '10,1,"a,""b""  a,""b"".c"', "2048,0.5,'=cmd()  =cmd().c", '',
  ].join('\r\n'));
});

test('JSON has the numbers in full', () => {
  assert.deepEqual(JSON.parse(asJson(ROWS.slice(0, 1), COLUMNS)), [{bytes: 2048, age: null, name: 'parse'}]);
});
