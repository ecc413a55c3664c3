// A table of rows of one height, of which only those in view are elements. Sorted by its heads,
// walked through by keys, with the details of a row beside it.

import type {ComponentChildren} from 'preact';
import {useSignal} from '@preact/signals';
import {useEffect, useLayoutEffect, useMemo, useRef} from 'preact/hooks';

import type {Units} from './format';
import {units} from './preferences';
import {cellText, isNumber, sortedBy, type Column, type Sort} from './table-model';
import {scrollFor, visibleRows} from './virtual';

/** The height of a row in pixels, as in the style sheet. */
export const ROW_HEIGHT = 24;

interface Props<R> {
  label: string;
  rows: readonly R[];
  columns: readonly Column<R>[];
  sort: Sort | undefined;
  onSort: (sort: Sort) => void;
  /** The largest value of a column for the bars behind its cells; no bars without it. */
  bar?: {column: string; most: number};
  chosen: number | undefined;
  onChoose: (row: number | undefined) => void;
}

let grids = 0;

/** Follows the height of an element, in pixels. */
export function useHeight(element: {current: HTMLElement | null}): number {
  const height = useSignal(600);
  useLayoutEffect(() => {
    const at = element.current;
    if (at === null) return undefined;
    const observer = new ResizeObserver(() => (height.value = at.clientHeight));
    observer.observe(at);
    height.value = at.clientHeight;
    return () => observer.disconnect();
  }, []);
  return height.value;
}

/** Returns the row to which a key leads, or nothing if the key is not one of lists. */
export function rowAfterKey(key: string, row: number, rows: number, page: number): number | undefined {
  const steps: Record<string, number> = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows, End: rows};
  const step = steps[key];
  return step === undefined ? undefined : Math.min(rows - 1, Math.max(0, row + step));
}

/** The widest column of numbers or short texts, in characters. */
const WIDTH_MOST = 26;

/**
 * Returns the widths of columns for the layout. Each row is laid out by itself, so columns of numbers
 * and short texts get the width of their longest cell; other texts share the rest.
 */
function tracksOf<R>(rows: readonly R[], columns: readonly Column<R>[], unitsNow: Units): string {
  return columns.map((column, at) => {
    let longest = column.label.length + 2;
    for (const row of rows) {
      longest = Math.max(longest, cellText(column.value(row), column.kind, unitsNow).length);
      if (longest > WIDTH_MOST) break;
    }
    if (isNumber(column.kind)) return `${Math.max(9, Math.min(WIDTH_MOST, longest)) + 1}ch`;
    if (at < columns.length - 1) return longest <= 16 ? `${longest + 1}ch` : 'minmax(130px, 0.8fr)';
    return 'minmax(240px, 1fr)';
  }).join(' ');
}

export function Grid<R>({label, rows, columns, sort, onSort, bar, chosen, onChoose}: Props<R>) {
  const box = useRef<HTMLDivElement>(null);
  const id = useRef(`grid-${(grids += 1)}`).current;
  const scroll = useSignal(0);
  const active = useSignal(0);
  const height = useHeight(box);
  const room = Math.max(ROW_HEIGHT, height - ROW_HEIGHT - 4);
  const at = Math.min(active.value, Math.max(0, rows.length - 1));
  useEffect(() => {
    if (chosen !== undefined) active.value = chosen;
  }, [chosen]);
  const {first, end, height: full, top} = visibleRows(rows.length, ROW_HEIGHT, room, scroll.value);
  const template = useMemo(() => tracksOf(rows, columns, units.value), [rows, columns, units.value]);
  const onKey = (event: KeyboardEvent): void => {
    if (event.target !== box.current) return;
    const next = rowAfterKey(event.key, at, rows.length, Math.max(1, Math.floor(room / ROW_HEIGHT) - 1));
    if (next !== undefined && rows.length > 0) {
      active.value = next;
      if (box.current !== null) box.current.scrollTop = scrollFor(next, rows.length, ROW_HEIGHT, room, box.current.scrollTop);
      if (chosen !== undefined) onChoose(next);
    } else if (event.key === 'Enter' && rows.length > 0) onChoose(chosen === at ? undefined : at);
    else if (event.key === 'Escape' && chosen !== undefined) onChoose(undefined);
    else return;
    event.preventDefault();
  };
  const heads: ComponentChildren = columns.map((column) => {
    const isSorted = sort?.column === column.id;
    return (
      <span role="columnheader" class={isNumber(column.kind) ? 'number' : ''} aria-sort={!isSorted ? 'none' : sort.isDescending ? 'descending' : 'ascending'}>
        <button type="button" onClick={() => onSort(sortedBy(column, sort))}>
          {column.label}<span class="direction" aria-hidden="true">{isSorted ? sort.isDescending ? ' ▾' : ' ▴' : ''}</span>
        </button>
      </span>
    );
  });
  const lines: ComponentChildren[] = [];
  for (let index = first; index < end; index += 1) {
    const row = rows[index];
    if (row === undefined) continue;
    lines.push(
      <div key={index} id={`${id}-${index}`} role="row" aria-rowindex={index + 2} aria-selected={index === chosen}
        class={`line${index === at ? ' active' : ''}`} style={{gridTemplateColumns: template}}
        onClick={() => { active.value = index; onChoose(index === chosen ? undefined : index); }}>
        {columns.map((column) => {
          const value = column.value(row);
          const more = column.more?.(row) ?? '';
          const text = cellText(value, column.kind, units.value);
          const width = bar?.column === column.id && typeof value === 'number' && bar.most > 0 ? Math.min(100, 100 * Math.abs(value) / bar.most) : undefined;
          const tone = column.kind.startsWith('growth') && typeof value === 'number' ? value > 0 ? ' more' : value < 0 ? ' less' : '' : '';
          return (
            <span role="gridcell" class={`${isNumber(column.kind) ? 'number' : 'text'}${tone}`} title={column.kind === 'text' ? `${text}${more === '' ? '' : `  ${more}`}` : undefined}>
              {width === undefined ? null : <i class="bar" style={{width: `${width}%`}} aria-hidden="true" />}
              <span>{text}</span>{more === '' ? null : <small>{more}</small>}
            </span>
          );
        })}
      </div>,
    );
  }
  return (
    <div class="grid" role="grid" tabIndex={0} ref={box} aria-label={label} aria-rowcount={rows.length + 1} aria-colcount={columns.length}
      aria-activedescendant={rows.length > 0 && at >= first && at < end ? `${id}-${at}` : undefined}
      onKeyDown={onKey} onScroll={(event) => (scroll.value = event.currentTarget.scrollTop)}>
      <div class="line heads" role="row" aria-rowindex={1} style={{gridTemplateColumns: template}}>{heads}</div>
      <div class="space" role="rowgroup" style={{height: `${full}px`}}>
        <div class="window" role="presentation" style={{transform: `translateY(${top}px)`}}>{lines}</div>
      </div>
    </div>
  );
}
