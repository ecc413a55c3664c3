// The difference of two recordings, or of two moments of one. Growth and shrinkage have a sign, and
// colours that differ for all eyes.

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {bytes, count, parseTime, signed, timeOption} from '../parts/format';
import {say} from '../parts/message';
import {units} from '../parts/preferences';
import {BY, rowMore, rowName, type Amounts, type Row} from '../parts/rows';
import {Stack} from '../parts/stack';
import {Table} from '../parts/table';
import type {Column} from '../parts/table-model';
import {valuesOf, type Parameter} from '../state/address';
import {optionsFor} from '../state/options';
import {session} from '../state/session';
import {change, goTo, parameters, setting} from '../state/state';
import type {ViewProps} from './views';

interface Side { file: string; metric: string; at: string; total: Amounts }
interface Diff { by: string; before: Side; after: Side; growth: number; rows_all: number; rows: readonly Row[] }

const columnsOf = (by: string): Column<Row>[] => [
  {id: 'growth', label: 'growth', kind: 'growth', value: (row) => row.growth ?? null},
  {id: 'blocks', label: 'blocks', kind: 'growth-blocks', value: (row) => (row.after?.blocks ?? 0) - (row.before?.blocks ?? 0)},
  {id: 'before', label: 'before', kind: 'bytes', value: (row) => row.before?.bytes ?? 0},
  {id: 'after', label: 'after', kind: 'bytes', value: (row) => row.after?.bytes ?? 0},
  {id: 'name', label: by, kind: 'text', value: (row) => rowName(row, by), more: (row) => rowMore(row, by)},
];

const MOMENTS: readonly (readonly [string, string])[] = [['', 'as above'], ['peak', 'the peak'], ['end', 'the end']];

/** The choice of a side: a file, and a moment. */
function SideTools({side}: {side: 0 | 1}) {
  const files = valuesOf(parameters.value, 'file');
  const moments = valuesOf(parameters.value, 'at');
  const own = files[side] ?? files[0] ?? '0';
  const moment = moments[side] ?? moments[0] ?? 'peak';
  const set = (list: readonly string[], usual: string, value: string): string[] => side === 0 ? [value, list[1] ?? list[0] ?? usual] : [list[0] ?? usual, value];
  const setFile = (value: string): void => change({file: set(files, '0', value)});
  const setMoment = (text: string): void => {
    const time = parseTime(text);
    if (text !== 'peak' && text !== 'end' && time === undefined) say(`“${text}” is no moment: expected peak, end, or a time such as 1.5s`);
    else change({at: set(moments, 'peak', time === undefined ? text : timeOption(time))});
  };
  return (
    <span class="group" role="group" aria-label={side === 0 ? 'Before' : 'After'}>
      <Choose label={side === 0 ? 'before' : 'after'} value={own} options={(session.value?.files ?? []).map(({id, name}) => [String(id), name])} onChange={setFile} />
      <label class="pick">at <input type="text" list="moments" value={moment} size={10} onChange={(event) => setMoment(event.currentTarget.value.trim())} /></label>
    </span>
  );
}

/** Returns the question: two files if they differ, otherwise two moments of one. */
export function diffOptions(all: readonly Parameter[]): Parameter[] | undefined {
  const files = valuesOf(all, 'file');
  const moments = valuesOf(all, 'at');
  const [before = '0', after = before] = files;
  const [first = 'peak', second = first] = moments;
  if (before === after && first === second) return undefined;
  const {options} = optionsFor('diff', all.filter(([name]) => name !== 'file' && name !== 'at'));
  const rest = options.filter(([name]) => name !== 'file');
  const isTotal = rest.some(([name]) => name === 'total');
  if (before === after) return isTotal ? undefined : [['file', before], ...rest, ['at', first], ['at', second]];
  if (isTotal) return [['file', before], ['file', after], ...rest];
  return [['file', before], ['file', after], ...rest, ['at', first], ...(first === second ? [] : [['at', second] as const])];
}

export function DiffView({label}: ViewProps) {
  const by = setting('by') ?? 'owner';
  const rows = Number(setting('rows')) || 100;
  const options = diffOptions(parameters.value);
  const asked = useAsk<Diff>('diff', options === undefined ? undefined : [...options, ['by', by], ['rows', String(rows)]]);
  const tools = (
    <>
      <SideTools side={0} /><SideTools side={1} />
      <datalist id="moments">{MOMENTS.slice(1).map(([value]) => <option value={value} />)}</datalist>
      <Choose label="by" value={by} options={BY} onChange={(value) => change({by: value, sort: undefined})} />
      {options === undefined ? null : <button type="button" onClick={() => goTo('flame')}>As a flame graph</button>}
    </>
  );
  if (options === undefined) {
    return <div class="fill"><div class="tools">{tools}</div><Nothing why="Both sides are the same." hint="Choose another file or another moment for one of them, or drag over the timeline: it compares both ends of a range." /></div>;
  }
  return (
    <div class="fill">
      {asked.value === undefined ? <div class="tools">{tools}</div> : null}
      <Answered asked={asked} what="Comparing">{(diff) => (
        <>
          <p class="total"><b class={diff.growth > 0 ? 'more' : diff.growth < 0 ? 'less' : ''}>{signed(bytes(diff.growth, units.value))}</b>: from {bytes(diff.before.total.bytes, units.value)} in {count(diff.before.total.blocks)} blocks to {bytes(diff.after.total.bytes, units.value)} in {count(diff.after.total.blocks)} blocks</p>
          {diff.rows.length === 0 ? <><div class="tools">{tools}</div><Nothing why="Nothing differs." /></> : (
            <Table label={label} rows={diff.rows} all={diff.rows_all} columns={columnsOf(diff.by)} bar="growth" tools={tools} more={() => change({rows: String(rows * 5)})}
              details={(row, close) => (
                <>
                  <div class="title"><h2>{rowName(row, diff.by)}</h2><button type="button" aria-label="Close the details" onClick={close}>✕</button></div>
                  <dl class="pairs">
                    <dt>growth</dt><dd>{signed(bytes(row.growth ?? 0, units.value))}</dd>
                    <dt>before</dt><dd>{bytes(row.before?.bytes ?? 0, units.value)} in {count(row.before?.blocks ?? 0)} blocks</dd>
                    <dt>after</dt><dd>{bytes(row.after?.bytes ?? 0, units.value)} in {count(row.after?.blocks ?? 0)} blocks</dd>
                  </dl>
                  <Stack frames={row.stack ?? []} title="Its largest stack, innermost first" />
                </>
              )} />
          )}
        </>
      )}</Answered>
    </div>
  );
}
