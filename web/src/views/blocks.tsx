// Blocks one by one, and reallocations.

import {useMemo} from 'preact/hooks';

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {bytes, count, seconds, timeOption} from '../parts/format';
import {units} from '../parts/preferences';
import {BY, frameWhere, isOwners, rowCondition, rowMore, rowName, type Amounts, type Frame, type Row} from '../parts/rows';
import {RowActions, Stack} from '../parts/stack';
import {Table} from '../parts/table';
import type {Column} from '../parts/table-model';
import {exactPattern} from '../state/address';
import {optionsFor} from '../state/options';
import {change, narrow, parameters, setting} from '../state/state';
import {stackOf, type StackFrame, type StackStart} from './block-stacks';
import {Unused} from './unused';
import type {ViewProps} from './views';

interface Block {
  pid: number; image: number; block: number; bytes: number; usable_bytes: number | null; allocated_seconds: number | null; age_seconds: number | null;
  thread: number | null; tid: number | null; type?: string | null; confidence?: string | null; stack: number;
}
interface Blocks { total: Amounts & {slop?: number}; usable_sizes?: string | null; rows_all: number; rows: readonly Block[]; stacks: readonly StackStart[]; frames: readonly StackFrame[] }

function columnsOf(stacks: ReadonlyMap<number, readonly Frame[]>): Column<Block>[] {
  return [
    {id: 'bytes', label: 'bytes', kind: 'bytes', value: (row) => row.bytes},
    {id: 'usable', label: 'usable', kind: 'bytes', value: (row) => row.usable_bytes},
    {id: 'allocated', label: 'allocated', kind: 'seconds', value: (row) => row.allocated_seconds},
    {id: 'age', label: 'age', kind: 'seconds', value: (row) => row.age_seconds},
    {id: 'thread', label: 'thread', kind: 'text', value: (row) => row.tid === null ? '' : String(row.tid)},
    {id: 'type', label: 'type', kind: 'text', value: (row) => row.type ?? ''},
    {id: 'name', label: 'allocated by', kind: 'text', value: (row) => stacks.get(row.stack)?.[0]?.function ?? '', more: (row) => frameWhere(stacks.get(row.stack)?.[0] ?? {})},
  ];
}

function Shown({answer, label}: {answer: Blocks; label: string}) {
  const stacks = useMemo(() => new Map(answer.stacks.map((start) => [start.stack, stackOf(answer.frames, start.frame)])), [answer]);
  const columns = useMemo(() => columnsOf(stacks), [stacks]);
  const rows = Number(setting('rows')) || 200;
  return (
    <>
      <p class="total"><b>{bytes(answer.total.bytes, units.value)}</b> in <b>{count(answer.total.blocks)}</b> blocks, the largest first
        {answer.total.slop === undefined ? null : <span class="soft">; {bytes(answer.total.slop, units.value)} slop, usable sizes {answer.usable_sizes}</span>}</p>
      <Table label={label} rows={answer.rows} all={answer.rows_all} columns={columns} bar="bytes" more={() => change({rows: String(rows * 5)})}
        details={(row, close) => (
          <>
            <div class="title"><h2>block {count(row.block)} of process {row.pid}</h2><button type="button" aria-label="Close the details" onClick={close}>✕</button></div>
            <dl class="pairs">
              <dt>requested</dt><dd>{count(row.bytes)} bytes</dd>
              {row.usable_bytes === null ? null : <><dt>usable</dt><dd>{count(row.usable_bytes)} bytes</dd></>}
              {row.allocated_seconds === null ? null : <><dt>allocated</dt><dd>at {timeOption(row.allocated_seconds)}</dd></>}
              {row.age_seconds === null ? null : <><dt>age</dt><dd>{seconds(row.age_seconds)}</dd></>}
              {row.tid === null ? null : <><dt>thread</dt><dd>{row.tid}</dd></>}
              {row.type === undefined || row.type === null ? null : <><dt>type</dt><dd>{row.type}{row.confidence === null || row.confidence === undefined ? '' : ` (${row.confidence})`}</dd></>}
            </dl>
            <p class="actions">
              {row.type === undefined || row.type === null ? null : <button type="button" onClick={() => narrow('type', exactPattern(row.type ?? ''))}>Of this type</button>}
              <button type="button" onClick={() => narrow('size', String(row.bytes))}>Of this size</button>
              {row.tid === null ? null : <button type="button" onClick={() => narrow('thread', String(row.tid))}>Of this thread</button>}
            </p>
            <Stack frames={stacks.get(row.stack) ?? []} title="The stack that allocated it, innermost first" />
          </>
        )} />
    </>
  );
}

export function BlocksView({label}: ViewProps) {
  const {options, unused} = optionsFor('blocks', parameters.value);
  const asked = useAsk<Blocks>('blocks', [...options, ['rows', setting('rows') ?? '200']]);
  return (
    <div class="fill">
      <Unused verb="blocks" unused={unused} />
      <Answered asked={asked} what="Listing blocks">{(answer) => answer.rows.length === 0
        ? <Nothing why="No block is live then." hint="Remove conditions above, or choose another moment." /> : <Shown answer={answer} label={label} />}</Answered>
    </div>
  );
}

interface Reallocated extends Row { reallocations: number; grown: number; shrunk: number; bytes_copied_max: number; chain_max: number; size_max: number }
interface Reallocations { by: string; total: {reallocations: number; grown: number; shrunk: number; bytes_copied_max: number}; rows_all: number; rows: readonly Reallocated[] }

const REALLOCATIONS: Column<Reallocated>[] = [
  {id: 'reallocations', label: 'calls', kind: 'blocks', value: (row) => row.reallocations},
  {id: 'copied', label: 'copied at most', kind: 'bytes', value: (row) => row.bytes_copied_max},
  {id: 'grown', label: 'grown', kind: 'blocks', value: (row) => row.grown},
  {id: 'shrunk', label: 'shrunk', kind: 'blocks', value: (row) => row.shrunk},
  {id: 'chain', label: 'longest chain', kind: 'blocks', value: (row) => row.chain_max},
  {id: 'size', label: 'largest', kind: 'bytes', value: (row) => row.size_max},
];

export function ReallocationsView({label}: ViewProps) {
  const by = setting('by') ?? 'site';
  const rows = Number(setting('rows')) || 100;
  const {options, unused} = optionsFor('reallocations', parameters.value);
  const asked = useAsk<Reallocations>('reallocations', [...options, ['by', by], ['rows', String(rows)]]);
  const tools = <Choose label="by" value={by} options={BY} onChange={(value) => change({by: value, sort: undefined})} />;
  return (
    <div class="fill">
      <Unused verb="reallocations" unused={unused} />
      <Answered asked={asked} what="Counting reallocations">{(answer) => answer.rows.length === 0
        ? <><div class="tools">{tools}</div><Nothing why="Nothing was reallocated." hint="Remove conditions above." /></> : (
          <>
            <p class="total"><b>{count(answer.total.reallocations)}</b> reallocations: {count(answer.total.grown)} grew, {count(answer.total.shrunk)} shrank; at most <b>{bytes(answer.total.bytes_copied_max, units.value)}</b> copied</p>
            <Table label={label} rows={answer.rows} all={answer.rows_all} columns={[...REALLOCATIONS, {id: 'name', label: answer.by, kind: 'text', value: (row) => rowName(row, answer.by), more: (row) => rowMore(row, answer.by)}]} bar="reallocations" tools={tools} more={() => change({rows: String(rows * 5)})}
              details={(row, close) => (
                <>
                  <div class="title"><h2>{rowName(row, answer.by)}</h2><button type="button" aria-label="Close the details" onClick={close}>✕</button></div>
                  <RowActions condition={rowCondition(row, answer.by)} isOfOwner={isOwners(answer.by)} />
                  <Stack frames={row.stack ?? []} title="Its largest stack, innermost first" />
                </>
              )} />
          </>
        )}</Answered>
    </div>
  );
}
