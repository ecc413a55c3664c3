// The flame graph of the page: its tools, its picture, and the chosen frame beside it.

import {render} from 'preact';
import {useEffect, useMemo, useRef, useState} from 'preact/hooks';

import {paletteOf, type ColorBy, type Sides} from './colors';
import {Details} from './details';
import {AFTER, BEFORE} from './difference';
import {BottomUp, TopDown, type Graph} from './graph';
import {Grid} from './grid';
import {changeText, Labels, percent, visible, type Format} from './labels';
import {functionText, sourceText} from './names';
import {Panel} from './panel';
import {PaperPicture, save, svgOf, type PictureOf} from './picture';
import {search, type Matches} from './search';
import type {Stage} from './stage';
import {nodeOnPath, pathText, type FlameState} from './state';
import {useTheme} from './theme';
import {ToolBar} from './tools';
import {functionsNamed, type Transform} from './transforms';
import type {Tree} from './tree';
import {Workshop, type Head} from './workshop';

export interface FlameProps {
  /** The bytes of an answer to `api/columns`. They are read again if they are others. */
  answer: Uint8Array;
  /** The answer for the older side, if two are compared. */
  before?: Uint8Array | undefined;
  /** The subject of the picture, such as `redis.hl at peak`. */
  name: string;
  state: FlameState;
  onState: (state: FlameState) => void;
  format: Format;
  /** Starts the worker for large trees. */
  makeWorker?: (() => Worker) | undefined;
}

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

/** All that is drawn. */
interface Shown {
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

export function FlameView(props: FlameProps) {
  const {state, onState, format, name} = props;
  const {shown, error} = useTree(props);
  if (error !== undefined) {
    return (
      <div class="flame-error" role="alert">
        <strong>The call tree could not be shown.</strong> {error}
      </div>
    );
  }
  if (shown === undefined) {
    return (
      <p class="flame-note" role="status">
        Reading the call tree…
      </p>
    );
  }
  return <Loaded shown={shown} state={state} onState={onState} format={format} name={name} />;
}

/** Makes the tree that the state asks for, and keeps the last one until it is there. */
function useTree({answer, before, state, makeWorker}: FlameProps): {shown: Shown | undefined; error: string | undefined} {
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

interface LoadedProps {
  shown: Shown;
  state: FlameState;
  onState: (state: FlameState) => void;
  format: Format;
  name: string;
}

function Loaded({shown, state, onState, format: given, name}: LoadedProps) {
  const {head, tree, graph, labels, callees, metric, sides} = shown;
  const theme = useTheme();
  const stage = useRef<Stage>(undefined);
  const searchBox = useRef<HTMLInputElement>(null);
  const [chosen, setChosen] = useKept(graph, 0);
  const [chosenBelow, setChosenBelow] = useKept(callees?.graph, 0);
  const [isBelow, setIsBelow] = useState(false);
  const zoomed = useZoomed(graph, state.zoom);
  const [zoomedBelow, setZoomedBelow] = useKept(callees?.graph, 0);

  // The metrics of two sides have the format of the metric itself.
  const format: Format = (amount, of) => given(amount, of.replace(/^(before|after) /, ''));
  const metricName = head.metrics[metric]!;
  const colors: ColorBy = state.colors || (sides ? 'growth' : 'module');
  const palette = useMemo(() => paletteOf(graph, colors, theme.theme, sides, theme.system), [graph, colors, theme]);
  const paletteBelow = useMemo(
    () => callees && paletteOf(callees.graph, colors, theme.theme, sides, theme.system),
    [callees, colors, theme],
  );
  const found = useMemo(() => (state.search === '' ? undefined : search(tree, state.search)), [tree, state.search]);
  const matches: Matches | undefined = found && 'names' in found ? found : undefined;

  const describe = (of: Graph, texts: Labels) => (node: number) => lines(of, texts, node, metric, sides, head.metrics, format);
  const change = (next: Partial<FlameState>): void => onState({...state, ...next});
  const add = (transform: Transform): void => change({changes: [...state.changes, transform], zoom: '', sandwich: ''});
  const zoom = (node: number): void => change({zoom: pathText(graph, node)});
  const focus = (of: Graph) => (event: KeyboardEvent, node: number) =>
    pageKey(event.key, of, node, {state, change, add, searchBox: searchBox.current, next: (step) => next(step)});
  const next = (step: 1 | -1): void => {
    const node = matches && nextMatch(graph, chosen, matches.names, step);
    if (node !== undefined) setChosen(node);
  };

  const direction = state.bottomUp ? 'Bottom-up' : 'Top-down';
  const title = `${state.sandwich ? `Callers of ${visible(state.sandwich)}` : direction}: ${name}`;
  const picture: PictureOf = {
    graph, labels, zoomed, orientation: callees ? 'flame' : state.orientation, matches: matches?.names,
    colors, sides, title, describe: describe(graph, labels),
  };
  const paper = usePaper(picture);
  const fileName = name.replace(/[^\w.-]+/g, '-');
  const active = isBelow && callees ? {...callees, node: chosenBelow} : {graph, labels, node: chosen};
  return (
    <div class="flame">
      <ToolBar
        state={state}
        change={change}
        metrics={sides ? head.metrics.filter((of) => of.startsWith(AFTER)).map((of) => of.slice(AFTER.length)) : head.metrics}
        hasTypes={shown.hasTypes}
        hasSides={sides !== undefined}
        colors={colors}
        found={found && ('error' in found ? found : {text: foundText(found, metricName, format)})}
        searchBox={searchBox}
        onNext={next}
        onPng={() => stage.current?.canvas.toBlob((blob) => blob && save(`${fileName}.png`, blob))}
        onSvg={() => save(`${fileName}.svg`, new Blob([svgOf(picture)], {type: 'image/svg+xml'}))}
      />
      {graph.width(0) === 0 && <p class="flame-note">{emptyText(shown, state)}</p>}
      <div class="flame-body" hidden={graph.width(0) === 0}>
        <div class="flame-pictures">
          <Panel
            {...{graph, labels, palette, zoomed, title, chosen, matches: matches?.names}}
            orientation={picture.orientation}
            describe={picture.describe}
            onChoose={(node) => (setIsBelow(false), setChosen(node))}
            onZoom={zoom}
            onKey={focus(graph)}
            onStage={(made) => (stage.current = made)}
          />
          {callees && paletteBelow && (
            <>
              <p class="flame-middle">
                {visible(state.sandwich)}: {format(graph.total(0, metric), metricName)}. Callers are above, callees below.
              </p>
              <Panel
                graph={callees.graph}
                labels={callees.labels}
                palette={paletteBelow}
                orientation="icicle"
                zoomed={zoomedBelow}
                chosen={chosenBelow}
                matches={matches?.names}
                title={`Callees of ${visible(state.sandwich)}: ${name}`}
                describe={describe(callees.graph, callees.labels)}
                onChoose={(node) => (setIsBelow(true), setChosenBelow(node))}
                onZoom={setZoomedBelow}
                onKey={focus(callees.graph)}
              />
            </>
          )}
          {head.cut.nodes > 0 && (
            <p class="flame-note">
              {head.cut.nodes.toLocaleString('en')} small frames with {format(head.cut.bytes, 'bytes')} were left out.
            </p>
          )}
          {graph instanceof BottomUp && graph.isFull && (
            <p class="flame-note">There are too many frames to show all of them: focus on a function to see more.</p>
          )}
        </div>
        <aside class="flame-side">
          <Details
            {...{metric, sides, format}}
            graph={active.graph}
            labels={active.labels}
            node={active.node}
            metrics={head.metrics}
            onChange={add}
            onSandwich={(of) => change({sandwich: of, zoom: ''})}
          />
          <Grid
            {...{metric, metricName, sides, format}}
            graph={active.graph}
            labels={active.labels}
            chosen={active.node}
            onChoose={active.graph === graph ? setChosen : setChosenBelow}
            onZoom={active.graph === graph ? zoom : setZoomedBelow}
          />
        </aside>
      </div>
      <div class="flame-paper" ref={paper} />
    </div>
  );
}

/** Keeps a node as long as the graph is the same, then looks for the same frames in the next. */
function useKept(graph: Graph | undefined, first: number): [number, (node: number) => void] {
  const [kept, setKept] = useState({graph, node: first});
  let {node} = kept;
  if (kept.graph !== graph) {
    const isSameKind = kept.graph && graph && kept.graph.isInverted === graph.isInverted;
    node = isSameKind ? nodeOnPath(graph, pathText(kept.graph!, kept.node)) : first;
    setKept({graph, node});
  }
  return [node, (to) => setKept({graph, node: to})];
}

/** Returns the node that a way leads to, or the last on it that there is. */
function useZoomed(graph: Graph, path: string): number {
  return useMemo(() => nodeOnPath(graph, path), [graph, path]);
}

/** Draws the picture as elements while the page is printed. */
function usePaper(picture: PictureOf) {
  const holder = useRef<HTMLDivElement>(null);
  const latest = useRef(picture);
  latest.current = picture;
  useEffect(() => {
    const abort = new AbortController();
    const show = (): void => render(<PaperPicture {...latest.current} />, holder.current!);
    addEventListener('beforeprint', show, {signal: abort.signal});
    addEventListener('afterprint', () => render(null, holder.current!), {signal: abort.signal});
    return () => abort.abort();
  }, []);
  return holder;
}

interface PageKeys {
  state: FlameState;
  change: (next: Partial<FlameState>) => void;
  add: (transform: Transform) => void;
  searchBox: HTMLInputElement | null;
  next: (step: 1 | -1) => void;
}

/** Does what a key of the picture means for the page. Returns false if it means nothing. */
function pageKey(key: string, graph: Graph, node: number, {state, change, add, searchBox, next}: PageKeys): boolean {
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
function nextMatch(graph: Graph, from: number, names: Uint8Array, step: 1 | -1): number | undefined {
  // Nodes of a tree are numbered in that order; of one turned over, in the order they were made.
  const count = graph instanceof BottomUp ? graph.count : graph.tree.name.length;
  for (let turn = 1; turn <= count; turn++) {
    const node = (from + step * turn + count * 2) % count;
    if (node !== 0 && names[graph.name(node)]) return node;
  }
  return undefined;
}

/** Returns why there is no picture, and what can be done. */
function emptyText({head, metric}: Shown, {changes, sandwich}: FlameState): string {
  if (head.total.every((total) => total === 0)) {
    return 'No block is in this selection. Remove a part of it, or choose another moment.';
  }
  if (sandwich !== '') return `No stack of this selection has ${visible(sandwich)}. Remove it above, or choose another function.`;
  if (changes.length > 0) return 'The changes to the stacks leave nothing of this selection. Remove one of them above.';
  return `All ${head.metrics[metric]} of this selection are 0. Choose another metric.`;
}

function foundText(found: Matches, metric: string, format: Format): string {
  if (found.count === 0) return 'no match';
  return `${percent(found.share, 1)}: ${format(found.amount, metric)} in ${found.count} ${found.count === 1 ? 'name' : 'names'}`;
}

/** Returns what a tooltip says: the name first. */
function lines(
  graph: Graph,
  labels: Labels,
  node: number,
  metric: number,
  sides: Sides | undefined,
  metrics: readonly string[],
  format: Format,
): string[] {
  const frame = graph.tree.names[graph.name(node)]!;
  const total = graph.total(node, metric);
  const self = graph.self(node, metric);
  const text = [labels.text(node)];
  const place = [frame.module, sourceText(frame)].filter((part) => part).map((part) => visible(part!));
  if (node !== 0 && place.length > 0) text.push(place.join(' · '));
  text.push(`${format(total, metrics[metric]!)} total, ${percent(total, graph.total(0, metric))} of all`);
  if (node !== 0) {
    const above = graph.total(graph.parent(node), metric);
    text.push(`${percent(total, above)} of its ${graph.isInverted ? 'callee' : 'caller'}`);
  }
  if (self !== 0) text.push(`${format(self, metrics[metric]!)} self`);
  if (sides !== undefined) text.push(`${changeText(graph, node, sides, format, metrics[metric]!)} growth`);
  return text;
}
