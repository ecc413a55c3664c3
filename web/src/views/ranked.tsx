// Views that are a ranking: the table of `top`, leaks, temporary allocations.

import type {ComponentChildren} from 'preact';

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {bytes, count, share} from '../parts/format';
import {units} from '../parts/preferences';
import {BY, frameWhere, isOwners, rowCondition, rowName, type Ranks, type Row} from '../parts/rows';
import {RowActions, Stack} from '../parts/stack';
import {Table} from '../parts/table';
import type {Parameter} from '../state/address';
import {optionsFor} from '../state/options';
import {change, parameters, setting} from '../state/state';
import {rankColumns} from './columns';
import {Unused} from './unused';
import type {ViewProps} from './views';

/** The number of rows that are asked for at first; each comes with its stack. */
const ROWS_FIRST = 100;

const METRICS: readonly (readonly [string, string])[] = [
  ['bytes', 'bytes'], ['blocks', 'blocks'], ['temporary', 'temporary allocations'], ['slop', 'slop'],
];

/** The details of a row: its figures in full, its stack, and what to ask next. */
export function RowDetails({row, by, close}: {row: Row; by: string; close: () => void}) {
  const name = rowName(row, by);
  const full = row.full ?? row.type ?? name;
  return (
    <>
      <div class="title"><h2 title={full}>{name}</h2><button type="button" aria-label="Close the details" onClick={close}>✕</button></div>
      {full === name ? null : <p class="full">{full}</p>}
      <dl class="pairs">
        {row.bytes === undefined ? null : <><dt>bytes</dt><dd>{bytes(row.bytes, units.value)} <small>({count(row.bytes)} B)</small></dd></>}
        {row.blocks === undefined ? null : <><dt>blocks</dt><dd>{count(row.blocks)}</dd></>}
        {row.temporary === undefined ? null : <><dt>temporary</dt><dd>{count(row.temporary)}</dd></>}
        {row.share === undefined ? null : <><dt>share</dt><dd>{share(row.share)}</dd></>}
        {typeof row.sites === 'number' ? <><dt>sites</dt><dd>{count(row.sites)}</dd></> : null}
        {frameWhere(row) === '' ? null : <><dt>where</dt><dd>{row.file ?? row.module}{row.line === undefined || row.line === null ? '' : `:${row.line}`}</dd></>}
        {row.module === undefined || row.module === null ? null : <><dt>module</dt><dd>{row.module}</dd></>}
      </dl>
      <RowActions condition={rowCondition(row, by)} isOfOwner={isOwners(by)} />
      <Stack frames={row.stack ?? []} title={(typeof row.sites === 'number' ? row.sites : 1) > 1 ? 'Its largest stack, innermost first' : 'Its stack, innermost first'} />
    </>
  );
}

interface RankedProps {
  label: string;
  verb: string;
  usualBy: string;
  metrics: boolean;
  tools?: ComponentChildren;
  extra?: readonly Parameter[];
  none: string;
}

export function Ranked({label, verb, usualBy, metrics, tools, extra = [], none}: RankedProps) {
  const by = setting('by') ?? usualBy;
  const metric = setting('metric') ?? 'bytes';
  const rows = Number(setting('rows')) || ROWS_FIRST;
  const {options, unused} = optionsFor(verb, parameters.value);
  const asked = useAsk<Ranks>(verb, [
    ...options, ['by', by], ...(metrics && metric !== 'bytes' ? [['metric', metric]] as Parameter[] : []), ['rows', String(rows)], ...extra,
  ]);
  const pick = (
    <>
      <Choose label="by" value={by} options={BY} onChange={(value) => change({by: value === usualBy ? undefined : value, sort: undefined})} />
      {metrics ? <Choose label="metric" value={metric} options={METRICS} onChange={(value) => change({metric: value === 'bytes' ? undefined : value, sort: undefined})} /> : null}
      {tools}
    </>
  );
  return (
    <div class="fill">
      <Unused verb={verb} unused={unused} />
      <Answered asked={asked} what={`Reading ${label.toLowerCase()}`}>{(ranks) => ranks.rows.length === 0
        ? <><div class="tools">{pick}</div><Nothing why={none} hint="Remove conditions above, or choose another moment." /></>
        : (
          <>
            <Total ranks={ranks} />
            <Table label={label} rows={ranks.rows} all={ranks.rows_all} columns={rankColumns(ranks.by, ranks.metric, ranks.rows)} bar={ranks.metric} tools={pick}
              details={(row, close) => <RowDetails row={row} by={ranks.by} close={close} />}
              more={() => change({rows: String(Math.min(ranks.rows_all, rows * 5))})} />
          </>
        )}</Answered>
      {asked.value === undefined && asked.error !== undefined ? <div class="tools">{pick}</div> : null}
    </div>
  );
}

function Total({ranks: {total, left_out: left, metric}}: {ranks: Ranks}) {
  return (
    <p class="total">
      <b>{bytes(total.bytes, units.value)}</b> in <b>{count(total.blocks)}</b> {metric === 'temporary' ? 'allocations' : 'blocks'}
      {total.temporary === undefined ? null : <>, <b>{count(total.temporary)}</b> of them temporary</>}
      {left === undefined || left.blocks === 0 ? null : <span class="soft">; {bytes(left.bytes, units.value)} in {count(left.blocks)} blocks are not chosen</span>}
    </p>
  );
}

export const TableView = ({label}: ViewProps) =>
  <Ranked label={label} verb="top" usualBy="owner" metrics none="No block is chosen." />;

export const LeaksView = ({label}: ViewProps) =>
  <Ranked label={label} verb="leaks" usualBy="site" metrics={false} none="Nothing was live at the end." />;

export function TemporaryView({label}: ViewProps) {
  const within = setting('within') ?? '';
  return (
    <Ranked label={label} verb="temporary" usualBy="site" metrics={false} none="No allocation was temporary."
      extra={within === '' ? [] : [['within', within]]}
      tools={<Choose label="freed" value={within} options={[['', 'as the next event of the thread'], ['10', 'within 10 allocations'], ['100', 'within 100 allocations'], ['1ms', 'within 1 ms'], ['100ms', 'within 100 ms']]}
        onChange={(value) => change({within: value === '' ? undefined : value})} />} />
  );
}
