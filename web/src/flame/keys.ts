// The keys of the flame graph that are not the canvas' own.

import {BottomUp, type Graph} from './graph';
import {functionText} from './names';
import type {FlameState} from './state';
import type {Transform} from './transforms';

/** The keys of the view and what they do. */
export const FLAME_KEYS: readonly [keys: string, meaning: string][] = [
  ['← → ↑ ↓', 'choose the next frame'],
  ['Enter', 'zoom to the chosen frame'],
  ['Esc, 0', 'show all'],
  ['+ −, Ctrl+wheel', 'zoom'],
  ['Shift+← →, drag', 'move sideways'],
  ['PgUp PgDn, wheel', 'move by rows'],
  ['Home', 'choose the root'],
  ['/', 'search'],
  ['n N', 'choose the next or the previous match'],
  ['i', 'icicle or flame'],
  ['b', 'top-down or bottom-up'],
  ['r', 'keep recursion, collapse direct, collapse all'],
  ['f', 'only stacks with the chosen function'],
  ['d', 'only stacks without it'],
  ['m', 'leave its frames out'],
  ['h', 'leave the frames of its module out'],
  ['s', 'callers and callees of it'],
  ['Backspace', 'undo the last change'],
];

export interface PageKeys {
  state: FlameState;
  change: (next: Partial<FlameState>) => void;
  add: (transform: Transform) => void;
  searchBox: HTMLInputElement | null;
  next: (step: 1 | -1) => void;
}

/** Does what a key of the picture means for the page. Returns false if it means nothing. */
export function pageKey(key: string, graph: Graph, node: number, {state, change, add, searchBox, next}: PageKeys): boolean {
  const frame = graph.tree.names[graph.name(node)]!;
  const isFunction = node !== 0 && graph.tree.by !== 'module';
  const text = functionText(frame);
  const actions: Record<string, (() => void) | false | undefined> = {
    '/': () => searchBox?.focus(),
    n: () => next(1),
    N: () => next(-1),
    i: () => change({orientation: state.orientation === 'icicle' ? 'flame' : 'icicle'}),
    b: () => change({bottomUp: !state.bottomUp, sandwich: '', zoom: ''}),
    r: () => change({changes: nextRecursion(state.changes)}),
    f: isFunction && (() => add({kind: 'focus', function: text})),
    d: isFunction && (() => add({kind: 'drop', function: text})),
    m: isFunction && (() => add({kind: 'merge', function: text})),
    s: isFunction && (() => change({sandwich: text, zoom: ''})),
    h: node !== 0 && frame.module !== undefined && (() => add({kind: 'hide', module: frame.module!})),
    Backspace: () => (state.sandwich ? change({sandwich: ''}) : change({changes: state.changes.slice(0, -1)})),
  };
  const action = actions[key];
  if (!action) return false;
  action();
  return true;
}

/** Keeps recursion, then collapses direct recursion, then all of it. */
function nextRecursion(changes: readonly Transform[]): Transform[] {
  const calls = changes.flatMap((change) => (change.kind === 'recursion' ? [change.calls] : [])).at(-1);
  const others = changes.filter((change) => change.kind !== 'recursion');
  if (calls === 'all') return others;
  return [...others, {kind: 'recursion', calls: calls === 'direct' ? 'all' : 'direct'}];
}

/** Returns the next node of a found name, in the order of the rows of a list, around the end. */
export function nextMatch(graph: Graph, from: number, names: Uint8Array, step: 1 | -1): number | undefined {
  // Nodes of a tree are numbered in that order; of one turned over, in the order they were made.
  const count = graph instanceof BottomUp ? graph.count : graph.tree.name.length;
  for (let turn = 1; turn <= count; turn++) {
    const node = (from + step * turn + count * 2) % count;
    if (node !== 0 && names[graph.name(node)]) return node;
  }
  return undefined;
}
