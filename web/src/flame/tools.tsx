// The tool bar of the flame graph, and the changes as chips that can be removed.

import type {RefObject} from 'preact';
import {useEffect, useState} from 'preact/hooks';

import type {ColorBy} from './colors';
import {visible} from './labels';
import {MERGES, type MergeBy} from './names';
import type {FlameState} from './state';
import {transformTitle} from './transforms';

/** The time after the last key of a search until it is done, in milliseconds. */
const SEARCH_DELAY = 150;

export interface ToolBarProps {
  state: FlameState;
  change: (next: Partial<FlameState>) => void;
  /** The names of the metrics that can be chosen. */
  metrics: readonly string[];
  hasTypes: boolean;
  hasSides: boolean;
  colors: ColorBy;
  found: {text: string} | {error: string} | undefined;
  searchBox: RefObject<HTMLInputElement | null>;
  onNext: (step: 1 | -1) => void;
  onPng: () => void;
  onSvg: () => void;
}

export function ToolBar(props: ToolBarProps) {
  const {state, change, metrics, found} = props;
  const recursion = state.changes.findLast((one) => one.kind === 'recursion')?.calls ?? 'keep';
  const setRecursion = (calls: string): void => {
    const others = state.changes.filter((one) => one.kind !== 'recursion');
    change({changes: calls === 'direct' || calls === 'all' ? [...others, {kind: 'recursion', calls}] : others});
  };
  return (
    <>
      <div class="flame-bar" role="toolbar" aria-label="Flame graph">
        <Switch
          label="Direction"
          value={state.bottomUp ? 'up' : 'down'}
          options={[['down', 'Top-down'], ['up', 'Bottom-up']]}
          onPick={(value) => change({bottomUp: value === 'up', sandwich: '', zoom: ''})}
        />
        <Switch
          label="Form"
          value={state.orientation}
          options={[['icicle', 'Icicle'], ['flame', 'Flame']]}
          onPick={(orientation) => change({orientation})}
        />
        {metrics.length > 1 && (
          <Choice
            label="Metric"
            value={state.metric || metrics[0]!}
            options={metrics.map((metric) => [metric, metric])}
            onPick={(metric) => change({metric: metric === metrics[0] ? '' : metric})}
          />
        )}
        <Choice
          label="Merge by"
          value={state.merge}
          options={MERGES.map((by) => [by, by])}
          onPick={(merge: MergeBy) => change({merge})}
        />
        <Choice
          label="Recursion"
          value={recursion}
          options={[['keep', 'keep'], ['direct', 'no direct'], ['all', 'none']]}
          onPick={setRecursion}
        />
        {(props.hasTypes || props.hasSides) && (
          <Choice
            label="Colours"
            value={props.colors}
            options={(['module', ...(props.hasTypes ? ['type'] : []), ...(props.hasSides ? ['growth'] : [])] as ColorBy[]).map(
              (by) => [by, by] as const,
            )}
            onPick={(colors: ColorBy) => change({colors})}
          />
        )}
        <Search {...props} />
        {found !== undefined && (
          <span class={'error' in found ? 'flame-found flame-wrong' : 'flame-found'} role="status">
            {'error' in found ? found.error : found.text}
          </span>
        )}
        <span class="flame-end">
          <button type="button" disabled={state.zoom === ''} onClick={() => change({zoom: ''})} title="Show all (Esc)">
            Show all
          </button>
          <button type="button" onClick={props.onPng}>PNG</button>
          <button type="button" onClick={props.onSvg}>SVG</button>
        </span>
      </div>
      {(state.changes.length > 0 || state.sandwich !== '') && <Chips state={state} change={change} />}
    </>
  );
}

function Search({state, change, searchBox, onNext}: ToolBarProps) {
  const [text, setText] = useState(state.search);
  useEffect(() => setText(state.search), [state.search]);
  useEffect(() => {
    if (text === state.search) return undefined;
    const timer = setTimeout(() => change({search: text}), SEARCH_DELAY);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <input
      ref={searchBox}
      type="search"
      placeholder="Search: text, * and ?"
      aria-label="Search for frames: a text, in which * stands for any characters and ? for one"
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === 'Enter') onNext(event.shiftKey ? -1 : 1);
      }}
    />
  );
}

function Chips({state, change}: {state: FlameState; change: (next: Partial<FlameState>) => void}) {
  const chips = state.changes.map((one, at) => ({
    text: transformTitle(one),
    remove: () => change({changes: state.changes.toSpliced(at, 1)}),
  }));
  if (state.sandwich) {
    chips.push({text: `callers and callees of ${state.sandwich}`, remove: () => change({sandwich: '', zoom: ''})});
  }
  return (
    <ul class="flame-chips" aria-label="Changes to the stacks">
      {chips.map(({text, remove}) => (
        <li>
          <button type="button" onClick={remove} title={`Remove: ${visible(text)}`} aria-label={`Remove: ${visible(text)}`}>
            {visible(text)} ✕
          </button>
        </li>
      ))}
    </ul>
  );
}

interface PickProps<T extends string> {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onPick: (value: T) => void;
}

function Switch<T extends string>({label, value, options, onPick}: PickProps<T>) {
  return (
    <span class="flame-switch" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button type="button" aria-pressed={option === value} onClick={() => onPick(option)}>
          {text}
        </button>
      ))}
    </span>
  );
}

function Choice<T extends string>({label, value, options, onPick}: PickProps<T>) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onPick(event.currentTarget.value as T)}>
        {options.map(([option, text]) => (
          <option value={option} selected={option === value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
