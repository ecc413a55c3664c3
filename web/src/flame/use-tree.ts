// The tree that the state asks for, made here or in the worker.

import {useEffect, useRef, useState} from 'preact/hooks';

import type {Sides} from './colors';
import {AFTER, BEFORE} from './difference';
import {BottomUp, TopDown, type Graph} from './graph';
import {Labels} from './labels';
import type {FlameState} from './state';
import {functionsNamed} from './transforms';
import type {Tree} from './tree';
import {Workshop, type Head} from './workshop';

/** The answers of the server, and the state. */
export interface TreeProps {
  answer: Uint8Array;
  before?: Uint8Array | undefined;
  state: FlameState;
  makeWorker?: (() => Worker) | undefined;
}

/** All that is drawn. */
export interface Shown {
  head: Head;
  tree: Tree;
  graph: Graph;
  labels: Labels;
  /** The callees of the function whose callers `graph` has. */
  callees: {graph: Graph; labels: Labels} | undefined;
  metric: number;
  sides: Sides | undefined;
  /** True if frames have types. */
  hasTypes: boolean;
}

/** Makes the tree that the state asks for, and keeps the last one until it is there. */
export function useTree(props: TreeProps): {shown: Shown | undefined; error: string | undefined} {
  const {answer, before, state, makeWorker} = props;
  const workshop = useRef<Workshop>(undefined);
  const loaded = useRef<{answer: Uint8Array; before: Uint8Array | undefined; head: Promise<Head>}>(undefined);
  const [shown, setShown] = useState<Shown>();
  const [error, setError] = useState<string>();
  useEffect(() => () => workshop.current?.close(), []);

  const changes = JSON.stringify(state.changes);
  useEffect(() => {
    let isOutdated = false;
    const make = async (): Promise<void> => {
      workshop.current ??= new Workshop(makeWorker);
      const shop = workshop.current;
      if (loaded.current?.answer !== answer || loaded.current.before !== before) {
        loaded.current = {answer, before, head: shop.load(answer, before)};
      }
      const head = await loaded.current.head;
      const {metric, sides} = metricOf(head, state.metric);
      // Callers and callees are of a function, so frames are functions.
      const by = state.sandwich && state.merge === 'module' ? 'function' : state.merge;
      const width = sides ? ([sides.before, sides.after] as const) : metric;
      const wanted = {by, transforms: state.changes, width};
      const tree = await shop.make('tree', wanted);
      const below = state.sandwich
        ? await shop.make('callees', {...wanted, calleesOf: state.sandwich})
        : undefined;
      if (isOutdated || tree === undefined || (state.sandwich && below === undefined)) return;
      const graph = state.sandwich
        ? BottomUp.callersOf(tree, functionsNamed(tree, state.sandwich))
        : state.bottomUp
          ? BottomUp.ofTree(tree)
          : new TopDown(tree);
      const callees = below && new TopDown(below);
      setError(undefined);
      setShown({
        head,
        tree,
        graph,
        labels: new Labels(graph),
        callees: callees && {graph: callees, labels: new Labels(callees, state.sandwich)},
        metric,
        sides,
        hasTypes: head.names.some(({type}) => type !== undefined),
      });
    };
    make().catch((reason: unknown) => {
      if (!isOutdated) setError(reason instanceof Error ? reason.message : String(reason));
    });
    return () => {
      isOutdated = true;
    };
  }, [answer, before, state.metric, state.merge, changes, state.bottomUp, state.sandwich]);
  return {shown, error};
}

/** Finds a metric by its name, or the first; of two sides, both metrics of that name. */
function metricOf(head: Head, name: string): {metric: number; sides: Sides | undefined} {
  const {metrics} = head;
  const after = metrics.indexOf(AFTER + (name || (metrics[0] ?? '').slice(BEFORE.length)));
  const before = after < 0 ? -1 : metrics.indexOf(BEFORE + metrics[after]!.slice(AFTER.length));
  if (before >= 0) return {metric: after, sides: {before, after}};
  return {metric: Math.max(0, metrics.indexOf(name)), sides: undefined};
}
