// The state of the view that is kept in the page's address, and the way to find a node again in
// another tree.

import type {ColorBy} from './colors';
import type {Orientation} from './draw';
import {pathTo, type Graph} from './graph';
import {keyText, MERGES, type MergeBy} from './names';
import {parseTransform, transformText, type Transform} from './transforms';
import {NONE} from './tree';

/** All that a colleague needs to see the same picture of the same file. */
export interface FlameState {
  /** The name of the metric; empty for the first. */
  metric: string;
  orientation: Orientation;
  /** True if the tree is turned over. */
  bottomUp: boolean;
  merge: MergeBy;
  changes: readonly Transform[];
  search: string;
  /** Empty for growth if two sides are compared, otherwise for modules. */
  colors: ColorBy | '';
  /** The way to the box that fills the width; empty for the root. See `pathText`. */
  zoom: string;
  /** The function whose callers and callees are shown; empty for the whole tree. */
  sandwich: string;
}

export const FIRST_STATE: FlameState = {
  metric: '',
  orientation: 'icicle',
  bottomUp: false,
  merge: 'function',
  changes: [],
  search: '',
  colors: '',
  zoom: '',
  sandwich: '',
};

/** Returns the parameters of an address: only those that differ from the first state. */
export function stateParameters(state: FlameState): [string, string][] {
  const given: [string, string][] = [];
  const add = (name: string, value: string, usual = ''): void => {
    if (value !== usual) given.push([name, value]);
  };
  add('metric', state.metric);
  add('orientation', state.orientation, FIRST_STATE.orientation);
  if (state.bottomUp) given.push(['bottom-up', '']);
  add('merge', state.merge, FIRST_STATE.merge);
  for (const change of state.changes) given.push(['change', transformText(change)]);
  add('search', state.search);
  add('colors', state.colors);
  add('sandwich', state.sandwich);
  add('zoom', state.zoom);
  return given;
}

/** Reads the parameters of an address. Unknown ones may be another version's: they are left out. */
export function stateOf(parameters: URLSearchParams): FlameState {
  const oneOf = <T extends string>(name: string, values: readonly T[], usual: T): T =>
    values.find((value) => value === parameters.get(name)) ?? usual;
  return {
    metric: parameters.get('metric') ?? '',
    orientation: oneOf('orientation', ['icicle', 'flame'], FIRST_STATE.orientation),
    bottomUp: parameters.has('bottom-up'),
    merge: oneOf('merge', MERGES, FIRST_STATE.merge),
    changes: parameters.getAll('change').flatMap((text) => parseTransform(text) ?? []),
    search: parameters.get('search') ?? '',
    colors: oneOf('colors', ['module', 'type', 'growth', ''], ''),
    zoom: parameters.get('zoom') ?? '',
    sandwich: parameters.get('sandwich') ?? '',
  };
}

/** Deeper ways would make an address that programs cut off. */
const PATH_MAX = 250;

/**
 * Returns the way from the root to a node: the hashes of the names on it, the root's left out. It
 * leads to the same frames in another tree, such as the next moment's.
 */
export function pathText(graph: Graph, node: number): string {
  return pathTo(graph, node)
    .slice(0, PATH_MAX)
    .map((step) => nameHash(graph, step))
    .join('.');
}

/** Returns the node that a way leads to, or the last that there is on it. */
export function nodeOnPath(graph: Graph, path: string): number {
  let node = 0;
  if (path === '') return node;
  for (const hash of path.split('.').slice(0, PATH_MAX)) {
    let child = graph.firstChild(node);
    while (child !== NONE && nameHash(graph, child) !== hash) child = graph.nextSibling(child);
    if (child === NONE) break;
    node = child;
  }
  return node;
}

/** FNV-1a of the text that makes frames the same, in base 36. */
function nameHash(graph: Graph, node: number): string {
  const text = keyText(graph.tree.names[graph.name(node)]!, graph.tree.by);
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  return (value >>> 0).toString(36);
}
