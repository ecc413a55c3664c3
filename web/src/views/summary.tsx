// The first view: what a newcomer needs on one screen, with the three most useful next clicks.

import type {ComponentChildren} from 'preact';

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {bytes, count, seconds, share} from '../parts/format';
import {units} from '../parts/preferences';
import {rowCondition, rowMore, rowName, type Amounts, type Ranks, type Row} from '../parts/rows';
import {ViewLink} from '../parts/stack';
import {optionsFor} from '../state/options';
import {currentFile} from '../state/session';
import {narrow, parameters} from '../state/state';
import {Sparkline} from './sparkline';
import {Unused} from './unused';
import type {ViewProps} from './views';

interface Exit { code?: number; signal?: number | string }
interface Counts {
  allocations: number;
  bytes_allocated: number;
  bytes_live_max: number;
  bytes_live_max_time_seconds: number;
  blocks_at_bytes_live_max: number;
  bytes_live_end: number;
  blocks_live_end: number;
  temporary_allocations: number;
  threads: number;
}
interface Process extends Counts { pid: number; command: string; exit: Exit | null; running: boolean }
interface Summary extends Partial<Counts> {
  command?: readonly string[] | null;
  duration_seconds?: number;
  events_lost?: number;
  complete?: boolean;
  resident_max?: {bytes: number; time_seconds: number} | null;
  processes?: readonly Process[];
}
/** The totals of a selection: another document than those of a whole recording. */
interface Selected { at: string; live: Amounts; peak: Amounts | null; allocated: Amounts; left_out: Amounts }
interface Advice { advice: readonly {rule: string; bytes: number; sentence: string; owner: {function?: string} | null}[] }

const isSelected = (answer: Summary | Selected): answer is Selected => 'live' in answer;

/** True if a verb can be asked about the file. */
const has = (verb: string): boolean => currentFile.value?.verbs.includes(verb) ?? true;

function Figure({label, value, children}: {label: string; value: string; children?: ComponentChildren}) {
  return <div class="figure"><dt>{label}</dt><dd><b>{value}</b>{children === undefined ? null : <small>{children}</small>}</dd></div>;
}

/** The next clicks, the most useful first: what this recording shows most clearly. */
function nextClicks(summary: Summary): ComponentChildren {
  const {bytes_live_end: end = 0, bytes_live_max: peak = 0, temporary_allocations: temporary = 0, allocations = 0} = summary;
  const clicks: [number, string, ComponentChildren][] = [
    [1, 'tree', <ViewLink to="tree">Who holds the {bytes(peak, units.value)} of the peak: the tree of calls</ViewLink>],
    [0.6, 'timeline', <ViewLink to="timeline">When it grew: the timeline; drag over a rise to see what caused it</ViewLink>],
    [peak > 0 ? end / peak : 0, 'leaks', <ViewLink to="leaks">Why {bytes(end, units.value)} in {count(summary.blocks_live_end ?? 0)} blocks were never freed</ViewLink>],
    [allocations > 0 ? 0.9 * temporary / allocations + (temporary > 100_000 ? 0.45 : 0) : 0, 'temporary',
      <ViewLink to="temporary">Where {count(temporary)} temporary allocations ({share(temporary / Math.max(1, allocations))}) come from</ViewLink>],
    [0.3, 'top', <ViewLink to="treemap">Of which types the blocks are</ViewLink>],
  ];
  return clicks.filter(([, verb]) => has(verb)).sort(([a], [b]) => b - a).slice(0, 3).map(([, , click]) => <li>{click}</li>);
}

/** A short list of the largest rows of a question. */
function Largest({title, verb, by, view}: {title: string; verb: string; by: string; view: string}) {
  const asked = useAsk<Ranks>(verb, [...optionsFor(verb, parameters.value).options, ['by', by], ['rows', '6']]);
  return (
    <section class="card">
      <h2><ViewLink to={view} settings={[['by', by]]}>{title}</ViewLink></h2>
      <Answered asked={asked} what={`Reading ${title.toLowerCase()}`}>{({rows, metric}) => rows.length === 0
        ? <Nothing why="No block is chosen." />
        : (
          <ol class="largest">{rows.map((row: Row) => {
            const condition = rowCondition(row, by);
            const name = rowName(row, by);
            const value = metric === 'temporary' ? count(row.temporary ?? 0) : bytes(row.bytes ?? 0, units.value);
            return (
              <li>
                <span class="value">{value}</span><span class="percent">{share(row.share ?? 0)}</span>
                <meter min={0} max={1} value={row.share ?? 0} aria-hidden="true" />
                {condition === undefined ? <span class="name" title={name}>{name}</span>
                  : <button type="button" class="link name" title={`${name}  ${rowMore(row, by)}`} onClick={() => narrow(condition[0], condition[1], 'tree')}>{name}</button>}
              </li>
            );
          })}</ol>
        )}</Answered>
    </section>
  );
}

function Advised() {
  const asked = useAsk<Advice>('advise', [...optionsFor('advise', parameters.value).options, ['rows', '3']]);
  return (
    <section class="card">
      <h2><ViewLink to="advice">Advice</ViewLink></h2>
      <Answered asked={asked} what="Searching for what is worth a change">{({advice}) => advice.length === 0
        ? <p class="soft">No rule found anything that is worth a change.</p>
        : <ul class="advised">{advice.map(({bytes: stake, sentence, owner}) => (
          <li><b>{bytes(stake, units.value)}</b> {owner?.function === undefined ? null : <code>{owner.function}</code>} {sentence}</li>
        ))}</ul>}</Answered>
    </section>
  );
}

function Processes({processes}: {processes: readonly Process[]}) {
  const largest = [...processes].sort((a, b) => b.bytes_live_max - a.bytes_live_max).slice(0, 6);
  return (
    <section class="card">
      <h2><ViewLink to="table" settings={[['by', 'process']]}>{count(processes.length)} processes</ViewLink></h2>
      <ol class="largest">{largest.map((one) => (
        <li>
          <span class="value">{bytes(one.bytes_live_max, units.value)}</span>
          <span class="percent">{one.pid}</span>
          <button type="button" class="link name" title={one.command} onClick={() => narrow('process', String(one.pid))}>{one.command}</button>
        </li>
      ))}</ol>
    </section>
  );
}

/** The figures of a whole recording. */
function Totals({summary}: {summary: Summary}) {
  const {allocations = 0} = summary;
  return (
    <>
      {summary.command === undefined || summary.command === null ? null : <p class="command"><code>{summary.command.join(' ')}</code></p>}
      {summary.complete === false ? <p class="warning" role="note">The recording ends before the program did: totals are those of its last moment.</p> : null}
      {(summary.events_lost ?? 0) > 0 ? <p class="warning" role="note">{count(summary.events_lost ?? 0)} events were lost, so figures are too low.</p> : null}
      <dl class="figures">
        <Figure label="peak" value={bytes(summary.bytes_live_max ?? 0, units.value)}>{count(summary.blocks_at_bytes_live_max ?? 0)} blocks at {seconds(summary.bytes_live_max_time_seconds ?? 0)}</Figure>
        <Figure label="live at the end" value={bytes(summary.bytes_live_end ?? 0, units.value)}>{count(summary.blocks_live_end ?? 0)} blocks</Figure>
        <Figure label="allocated" value={bytes(summary.bytes_allocated ?? 0, units.value)}>{count(allocations)} allocations</Figure>
        <Figure label="temporary" value={share((summary.temporary_allocations ?? 0) / Math.max(1, allocations))}>{count(summary.temporary_allocations ?? 0)} allocations</Figure>
        {summary.resident_max === undefined || summary.resident_max === null ? null
          : <Figure label="resident at most" value={bytes(summary.resident_max.bytes, units.value)}>at {seconds(summary.resident_max.time_seconds)}</Figure>}
        <Figure label="time" value={seconds(summary.duration_seconds ?? 0)}>{summary.threads === 1 ? '1 thread' : `${count(summary.threads ?? 0)} threads`}</Figure>
      </dl>
      <section class="next"><h2>Look next</h2><ol>{nextClicks(summary)}</ol></section>
    </>
  );
}

/** The figures of the blocks that the selection chooses. */
function SelectedTotals({selected: {at, live, peak, allocated, left_out: left}}: {selected: Selected}) {
  return (
    <>
      <dl class="figures">
        {peak === null ? null : <Figure label="live at the peak" value={bytes(peak.bytes, units.value)}>{count(peak.blocks)} blocks</Figure>}
        {at === 'peak' && peak !== null ? null
          : <Figure label={at === 'end' || at === 'peak' ? `live at the ${at}` : `live at ${at}`} value={bytes(live.bytes, units.value)}>{count(live.blocks)} blocks</Figure>}
        <Figure label="allocated" value={bytes(allocated.bytes, units.value)}>{count(allocated.blocks)} allocations</Figure>
      </dl>
      {left.blocks === 0 ? null : <p class="soft">{bytes(left.bytes, units.value)} in {count(left.blocks)} allocations are not chosen</p>}
    </>
  );
}

export function SummaryView({label}: ViewProps) {
  const {options, unused} = optionsFor('summary', parameters.value);
  const asked = useAsk<Summary | Selected>('summary', options);
  return (
    <div class="summary" aria-label={label}>
      <Unused verb="summary" unused={unused} />
      <Answered asked={asked} what="Reading the totals">{(answer) => {
        if (!isSelected(answer) && answer.bytes_live_max === undefined) {
          return <Nothing why="This file has no totals of a recording." hint={<>Look at <ViewLink to="answers">its answers</ViewLink>.</>} />;
        }
        const processes = isSelected(answer) ? [] : answer.processes ?? [];
        return (
          <>
            {isSelected(answer) ? <SelectedTotals selected={answer} /> : <Totals summary={answer} />}
            {has('timeline') ? <Sparkline /> : null}
            <div class="cards">
              {has('top') ? <Largest title="Largest owners" verb="top" by="owner" view="table" /> : null}
              {has('top') ? <Largest title="Largest types" verb="top" by="type" view="table" /> : null}
              {has('leaks') ? <Largest title="Leaks" verb="leaks" by="owner" view="leaks" /> : null}
              {has('advise') ? <Advised /> : null}
              {processes.length > 1 ? <Processes processes={processes} /> : null}
            </div>
          </>
        );
      }}</Answered>
    </div>
  );
}
