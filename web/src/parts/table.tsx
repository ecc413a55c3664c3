// A table with its tools: filter, number of rows, copying, and the details of the chosen row.

import type {ComponentChildren} from 'preact';
import {useSignal} from '@preact/signals';
import {useRef} from 'preact/hooks';

import {change, setting} from '../state/state';
import {Grid} from './grid';
import {useKeys} from './keys';
import {copy} from './message';
import {units} from './preferences';
import {count} from './format';
import {arranged, asCsv, asJson, asText, parseSort, sortText, type Column} from './table-model';

interface Props<R> {
  /** The name of the table, for screen readers and for files. */
  label: string;
  rows: readonly R[];
  /** The number of rows that there are in all; the answer may have fewer. */
  all: number;
  columns: readonly Column<R>[];
  bar?: string;
  /** Tools before the filter. */
  tools?: ComponentChildren;
  details?: (row: R, close: () => void) => ComponentChildren;
  /** Asks for more rows. */
  more?: () => void;
}

export function Table<R>({label, rows, all, columns, bar, tools, details, more}: Props<R>) {
  const filterBox = useRef<HTMLInputElement>(null);
  const chosen = useSignal<R | undefined>(undefined);
  const filter = setting('filter') ?? '';
  const sort = parseSort(setting('sort'));
  const shown = arranged(rows, columns, filter, sort);
  const barColumn = columns.find(({id}) => id === bar);
  const most = barColumn === undefined ? 0 : rows.reduce((most, row) => Math.max(most, Math.abs(Number(barColumn.value(row) ?? 0))), 0);
  const at = chosen.value === undefined ? -1 : shown.indexOf(chosen.value);
  const copyAs = (kind: string): void => {
    const text = kind === 'csv' ? asCsv(shown, columns) : kind === 'json' ? asJson(shown, columns) : asText(shown, columns, units.value);
    void copy(text, `${count(shown.length)} rows as ${kind}`, `${label.replaceAll(/\W+/g, '-')}.${kind === 'text' ? 'txt' : kind}`);
  };
  useKeys([
    {key: '/', does: 'filter the rows', run: () => filterBox.current?.focus()},
    {key: 'c', does: 'copy the rows as text', run: () => copyAs('text')},
  ], [shown, columns]);
  const close = (): void => { chosen.value = undefined; };
  return (
    <div class="table">
      <div class="tools">
        {tools}
        <label class="filter"><span class="unseen">Filter the rows</span>
          <input type="search" ref={filterBox} placeholder="Filter the rows  /" spellcheck={false} autocomplete="off" value={filter}
            onInput={(event) => change({filter: event.currentTarget.value === '' ? undefined : event.currentTarget.value}, true)} />
        </label>
        <span class="soft" aria-live="polite">{shown.length === all ? `${count(all)} rows` : `${count(shown.length)} of ${count(all)} rows`}</span>
        {more !== undefined && rows.length < all ? <button type="button" onClick={more}>More rows</button> : null}
        <span class="group" role="group" aria-label="Copy the rows">
          <span class="soft">Copy as</span>
          {['text', 'csv', 'json'].map((kind) => <button type="button" aria-label={`Copy as ${kind}`} onClick={() => copyAs(kind)}>{kind === 'text' ? kind : kind.toUpperCase()}</button>)}
        </span>
      </div>
      <div class={`split${at >= 0 && details !== undefined ? ' with-details' : ''}`}>
        <Grid label={label} rows={shown} columns={columns} sort={sort} onSort={(next) => change({sort: sortText(next)})}
          {...(barColumn === undefined ? {} : {bar: {column: barColumn.id, most}})}
          chosen={at < 0 ? undefined : at} onChoose={(index) => (chosen.value = index === undefined ? undefined : shown[index])} />
        {at >= 0 && details !== undefined && chosen.value !== undefined ? (
          <aside class="details" aria-label="Details of the row">{details(chosen.value, close)}</aside>
        ) : null}
      </div>
    </div>
  );
}
