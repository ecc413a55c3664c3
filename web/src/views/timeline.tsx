// The timeline: live bytes and blocks over time, beside the memory that the system counts; or
// stacked by site, type, context or thread. A dragged range leads to four questions.

import {useSignal} from '@preact/signals';
import {useMemo} from 'preact/hooks';

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {bytes, count, parseTime, seconds, timeOption} from '../parts/format';
import {savePicture} from '../parts/message';
import {Plot, type Curve} from '../parts/plot';
import {color, colorsChanged, units} from '../parts/preferences';
import {BY} from '../parts/rows';
import {isSelection, withValues, type Parameter} from '../state/address';
import {optionsFor} from '../state/options';
import {change, goToPlace, parameters, setting} from '../state/state';
import {joined, marksOf, stacked, thinned, valueAt} from './timeline-columns';
import type {Timeline} from './timeline-model';
import {Unused} from './unused';
import type {ViewProps} from './views';

/** The most points of a curve: about twice as many as a plot has pixels. */
const POINTS_MOST = 4000;
const SERIES = 9;

const inBytes = (value: number): string => bytes(value, units.value);

function curvesOf(timeline: Timeline): {times: number[]; curves: Curve[]} {
  const {groups, times_seconds: times} = timeline;
  if (groups !== undefined && groups !== null && times !== undefined && times !== null) {
    const sums = stacked(groups.map((group) => group.bytes));
    return {
      times: [...times],
      curves: groups.map(({name}, at): Curve => ({
        label: name.split('  ')[0] ?? name, color: color(`series-${at % SERIES}`), values: sums[at] ?? [], text: inBytes, scale: 'y', isStepped: false, isBand: true,
      })),
    };
  }
  const live = thinned(timeline.live, POINTS_MOST);
  const memory = timeline.memory;
  const liveTimes = live.map((point) => point.time_seconds);
  const memoryTimes = memory.map((point) => point.time_seconds);
  const lists: {label: string; hue: number; values: number[]; times: number[]; text: (value: number) => string; scale: 'y' | 'count'; isStepped: boolean; isDashed?: boolean}[] = [
    {label: 'live bytes', hue: 0, values: live.map((point) => point.bytes), times: liveTimes, text: inBytes, scale: 'y', isStepped: true},
    {label: 'live blocks', hue: 1, values: live.map((point) => point.blocks), times: liveTimes, text: count, scale: 'count', isStepped: true, isDashed: true},
  ];
  const add = (label: string, hue: number, of: (point: Timeline['memory'][number]) => number): void => {
    const values = memory.map(of);
    if (values.some((value) => value > 0)) lists.push({label, hue, values, times: memoryTimes, text: inBytes, scale: 'y', isStepped: false});
  };
  add('resident', 2, (point) => point.resident);
  add('resident, of no file', 3, (point) => point.resident_anonymous);
  add('brk heap', 4, (point) => point.brk);
  add('swapped', 6, (point) => point.swapped);
  const {times: all, columns} = joined(lists);
  return {times: all, curves: lists.map(({hue, ...list}, at): Curve => ({...list, color: color(`series-${hue}`), values: columns[at] ?? []}))};
}

/** Reads a range as the verbs write it; its ends are exact. */
function parseRange(text: string | undefined): [number, number] | undefined {
  const [from, to] = (text ?? '').split('-').map(parseTime);
  return from === undefined || to === undefined || to <= from ? undefined : [from, to];
}

/** The four questions about a range. */
function Questions({range, timeline, onClear}: {range: [number, number]; timeline: Timeline; onClear: () => void}) {
  const to = useSignal('table');
  const text = range.map(timeOption).join('-');
  const ask = (values: Record<string, string | undefined>) => (): void => {
    const selection = parameters.value.filter(([name]) => isSelection(name));
    goToPlace({view: to.value, parameters: withValues(selection, {at: undefined, during: undefined, total: undefined, ...values})});
  };
  const before = valueAt(timeline.live, range[0]);
  const after = valueAt(timeline.live, range[1]);
  const grown = (after?.bytes ?? 0) - (before?.bytes ?? 0);
  return (
    <div class="questions" role="region" aria-label="The chosen range">
      <p><b>{seconds(range[0])} – {seconds(range[1])}</b> ({seconds(range[1] - range[0])}): live bytes {grown < 0 ? 'fall' : 'grow'} by <b>{bytes(Math.abs(grown), units.value)}</b>, from {bytes(before?.bytes ?? 0, units.value)} to {bytes(after?.bytes ?? 0, units.value)}</p>
      <p class="actions">
        <Choose label="Show as" value={to.value} options={[['table', 'table'], ['flame', 'flame graph'], ['tree', 'tree'], ['treemap', 'treemap'], ['sizes', 'sizes']]} onChange={(value) => (to.value = value)} />
        <button type="button" onClick={ask({during: text})}>allocated within, and live at its end</button>
        <button type="button" onClick={ask({during: text, total: ''})}>allocated within</button>
        <button type="button" onClick={ask({at: timeOption(range[1])})}>live at its end</button>
        <button type="button" onClick={() => goToPlace({view: 'diff', parameters: withValues(parameters.value.filter(([name]) => isSelection(name)), {during: undefined, total: undefined, at: range.map(timeOption)})})}>what changed between both ends</button>
        <button type="button" onClick={onClear}>Choose no range</button>
      </p>
    </div>
  );
}

function Picture({timeline, label}: {timeline: Timeline; label: string}) {
  const {times, curves} = useMemo(() => curvesOf(timeline), [timeline, colorsChanged.value, units.value]);
  const marks = useMemo(() => marksOf(timeline), [timeline]);
  const range = parseRange(setting('range') ?? setting('during'));
  const {peak} = timeline;
  return (
    <>
      <Plot label={`${label}: ${bytes(peak.bytes, units.value)} at the peak, at ${seconds(peak.time_seconds)}`} times={times} curves={curves} marks={marks} range={range}
        onRange={(next) => change({range: next === undefined ? undefined : next.map(timeOption).join('-')}, true)} />
      {range === undefined ? <p class="total soft">Drag over the plot to choose a range of time; with the keyboard: arrows, + and −.</p>
        : <Questions range={range} timeline={timeline} onClear={() => change({range: undefined})} />}
      {timeline.programs.length < 2 ? null : (
        <details class="notes"><summary>{count(timeline.programs.length)} programs</summary>
          <table><thead><tr><th scope="col">from</th><th scope="col">to</th><th scope="col">pid</th><th scope="col">how</th><th scope="col">command</th></tr></thead>
            <tbody>{timeline.programs.slice(0, 500).map((one) => <tr><td>{seconds(one.from_seconds)}</td><td>{one.to_seconds === null ? '' : seconds(one.to_seconds)}</td><td>{one.pid}</td><td>{one.how}</td><td><code>{one.command}</code></td></tr>)}</tbody></table>
        </details>
      )}
    </>
  );
}

export function TimelineView({label}: ViewProps) {
  const by = setting('by') ?? '';
  // The whole time is drawn; a range of the selection is marked in it.
  const whole = parameters.value.filter(([name]) => name !== 'during' && name !== 'at' && name !== 'total');
  const {options} = optionsFor('timeline', whole);
  const all: Parameter[] = by === '' ? options : [...options, ['by', by], ['rows', '8']];
  const asked = useAsk<Timeline>('timeline', all);
  return (
    <div class="fill">
      <div class="tools">
        <Choose label="stacked by" value={by} options={[['', 'nothing: bytes, blocks, resident'], ...BY]} onChange={(value) => change({by: value === '' ? undefined : value})} />
        <button type="button" onClick={() => savePicture(document.querySelector('.plot canvas'), color('paper'), 'timeline.png')}>Save as PNG</button>
      </div>
      <Unused verb="timeline" unused={[]} />
      <Answered asked={asked} what="Reading the timeline">{(timeline) => timeline.live.length === 0 && timeline.memory.length === 0
        ? <Nothing why="No event is chosen, so there is nothing over time." hint="Remove conditions above." />
        : <Picture timeline={timeline} label={label} />}</Answered>
    </div>
  );
}
