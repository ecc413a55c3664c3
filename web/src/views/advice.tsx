// Advice and growth: what rules have found, with the evidence and the view that proves it.

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {bytes, count, seconds} from '../parts/format';
import {units} from '../parts/preferences';
import {BY, frameWhere, isOwners, rowCondition, rowMore, rowName, type Frame, type Row} from '../parts/rows';
import {RowActions} from '../parts/stack';
import {Table} from '../parts/table';
import type {Column} from '../parts/table-model';
import {exactPattern, type Parameter} from '../state/address';
import {optionsFor} from '../state/options';
import {change, goTo, narrow, parameters, setting} from '../state/state';
import {Unused} from './unused';
import type {ViewProps} from './views';

interface Item { rule: string; bytes: number; owner: Frame | null; via: Frame | null; sentence: string; evidence: unknown; proof: string }
interface Advice { advice: readonly Item[]; advice_all: number; skipped: readonly {rule: string; why: string}[] }

/** The view that shows the evidence of a rule. */
const PROOFS: Readonly<Record<string, readonly [view: string, settings: readonly Parameter[]]>> = {
  leak: ['growth', []], temporary: ['temporary', [['by', 'owner']]], reserve: ['reallocations', [['by', 'owner']]], slop: ['table', [['by', 'size'], ['metric', 'slop']]],
};

/** Shows figures of any shape as names and values, to one level. */
function Evidence({evidence}: {evidence: unknown}) {
  if (evidence === null || typeof evidence !== 'object') return null;
  return (
    <dl class="pairs">{Object.entries(evidence).map(([name, value]) => {
      const text = typeof value !== 'number' ? String(typeof value === 'object' ? JSON.stringify(value) : value)
        : /bytes/.test(name) ? bytes(value, units.value) : /seconds/.test(name) ? seconds(value) : Number.isInteger(value) ? count(value) : value.toPrecision(4);
      return <><dt>{name.replaceAll('_', ' ')}</dt><dd>{text}</dd></>;
    })}</dl>
  );
}

export function AdviceView({label}: ViewProps) {
  const {options, unused} = optionsFor('advise', parameters.value);
  const asked = useAsk<Advice>('advise', [...options, ['rows', '50']]);
  const show = ({rule, owner}: Item) => (): void => {
    const [to, settings] = PROOFS[rule] ?? ['table', []];
    if (owner?.function !== undefined && to !== 'growth') narrow('allocated-by', exactPattern(owner.function));
    goTo(to, settings);
  };
  return (
    <div class="prose" aria-label={label}>
      <Unused verb="advise" unused={unused} />
      <Answered asked={asked} what="Searching for what is worth a change">{({advice, skipped}) => (
        <>
          {advice.length === 0 ? <Nothing why="No rule found anything that is worth a change." hint={skipped.length === 0 ? undefined : 'Some rules could not be applied: see below.'} /> : null}
          {advice.map((item) => (
            <article>
              <h2>{item.rule}: {bytes(item.bytes, units.value)}{item.owner?.function === undefined ? '' : ` · ${item.owner.function}`}</h2>
              {item.owner === null ? null : <p class="soft">{frameWhere(item.owner)}{item.via?.function === undefined ? '' : `, via ${item.via.function}`}</p>}
              <p>{item.sentence}</p>
              <Evidence evidence={item.evidence} />
              <p class="actions"><button type="button" onClick={show(item)}>Show the evidence</button><span class="soft">or: <code>{item.proof}</code></span></p>
            </article>
          ))}
          {skipped.length === 0 ? null : <details class="notes"><summary>{skipped.length === 1 ? '1 rule was' : `${skipped.length} rules were`} not applied</summary>{skipped.map(({rule, why}) => <p><b>{rule}</b>: {why}</p>)}</details>}
        </>
      )}</Answered>
    </div>
  );
}

interface Grown extends Row { kind: string; certain: boolean; bytes_per_second: number; bytes_per_second_least: number; bytes_per_second_most: number; since_seconds: number; bytes_gained: number; bytes_live: number }
interface Growth { by: string; from_seconds: number; to_seconds: number; groups: number; rows_all: number; rows: readonly Grown[] }

const growthColumns = (by: string): Column<Grown>[] => [
  {id: 'gained', label: 'gained', kind: 'bytes', value: (row) => row.bytes_gained},
  {id: 'rate', label: 'a second', kind: 'bytes', value: (row) => row.bytes_per_second},
  {id: 'since', label: 'since', kind: 'seconds', value: (row) => row.since_seconds},
  {id: 'live', label: 'live', kind: 'bytes', value: (row) => row.bytes_live},
  {id: 'kind', label: 'kind', kind: 'text', value: (row) => `${row.kind.replaceAll('_', ' ')}${row.certain ? ', certain' : ', likely'}`},
  {id: 'name', label: by, kind: 'text', value: (row) => rowName(row, by), more: (row) => rowMore(row, by)},
];

export function GrowthView({label}: ViewProps) {
  const by = setting('by') ?? 'owner';
  const isAll = setting('all') !== undefined;
  const {options, unused} = optionsFor('growth', parameters.value);
  const asked = useAsk<Growth>('growth', [...options, ['by', by], ['rows', '200'], ...(isAll ? [['all', ''] as const] : [])]);
  const tools = (
    <>
      <Choose label="by" value={by} options={BY} onChange={(value) => change({by: value, sort: undefined})} />
      <Choose label="show" value={isAll ? 'all' : ''} options={[['', 'what grows steadily'], ['all', 'all that grows']]} onChange={(value) => change({all: value === '' ? undefined : ''})} />
    </>
  );
  return (
    <div class="fill">
      <Unused verb="growth" unused={unused} />
      <Answered asked={asked} what="Looking for steady growth">{(growth) => growth.rows.length === 0
        ? <><div class="tools">{tools}</div><Nothing why={`Nothing grows steadily between ${seconds(growth.from_seconds)} and ${seconds(growth.to_seconds)}.`} hint="A recording of some minutes under even load tells the most." /></>
        : <Table label={label} rows={growth.rows} all={growth.rows_all} columns={growthColumns(growth.by)} bar="gained" tools={tools}
          details={(row, close) => (
            <>
              <div class="title"><h2>{rowName(row, growth.by)}</h2><button type="button" aria-label="Close the details" onClick={close}>✕</button></div>
              <dl class="pairs">
                <dt>gained</dt><dd>{bytes(row.bytes_gained, units.value)} since {seconds(row.since_seconds)}</dd>
                <dt>a second</dt><dd>{bytes(row.bytes_per_second, units.value)} ({bytes(row.bytes_per_second_least, units.value)} to {bytes(row.bytes_per_second_most, units.value)})</dd>
                <dt>live</dt><dd>{bytes(row.bytes_live, units.value)}</dd>
              </dl>
              <RowActions condition={rowCondition(row, growth.by)} isOfOwner={isOwners(growth.by)} />
            </>
          )} />}</Answered>
    </div>
  );
}
