// The flame graph of the page: its tools, its picture, and the chosen frame beside it.

import {render} from 'preact';
import {useEffect, useMemo, useRef, useState} from 'preact/hooks';

import {paletteOf, type ColorBy} from './colors';
import {Details} from './details';
import {AFTER} from './difference';
import {BottomUp, type Graph} from './graph';
import {Grid} from './grid';
import {nextMatch, pageKey} from './keys';
import {Labels, visible, type Copy, type Format} from './labels';
import {Panel} from './panel';
import {PaperPicture, save, svgOf, type PictureOf} from './picture';
import {search, type Matches} from './search';
import type {Stage} from './stage';
import {nodeOnPath, pathText, type FlameState} from './state';
import {useTheme} from './theme';
import {ToolBar} from './tools';
import type {Transform} from './transforms';
import {useTree, type Shown} from './use-tree';
import {emptyText, foundText, lines} from './words';

export {FLAME_KEYS} from './keys';

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
  /** Copies a text. Without it the clipboard gets the text silently. */
  onCopy?: Copy | undefined;
  /** Starts the worker for large trees. */
  makeWorker?: (() => Worker) | undefined;
}

export function FlameView(props: FlameProps) {
  const {state, onState, format, name, onCopy = copySilently} = props;
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
  return <Loaded shown={shown} state={state} onState={onState} format={format} name={name} onCopy={onCopy} />;
}

function copySilently(text: string): void {
  void navigator.clipboard.writeText(text);
}

interface LoadedProps {
  shown: Shown;
  state: FlameState;
  onState: (state: FlameState) => void;
  format: Format;
  name: string;
  onCopy: Copy;
}

function Loaded({shown, state, onState, format: given, name, onCopy}: LoadedProps) {
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

  const describe = (of: Graph, texts: Labels) => (node: number) => lines(shown, of, texts, node, format);
  const change = (next: Partial<FlameState>): void => onState({...state, ...next});
  const add = (transform: Transform): void => change({changes: [...state.changes, transform], zoom: '', sandwich: ''});
  const zoom = (node: number): void => change({zoom: pathText(graph, node)});
  const next = (step: 1 | -1): void => {
    const node = matches && nextMatch(graph, chosen, matches.names, step);
    if (node !== undefined) setChosen(node);
  };
  const keyOf = (of: Graph) => (event: KeyboardEvent, node: number) =>
    pageKey(event.key, of, node, {state, change, add, searchBox: searchBox.current, next});

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
            onKey={keyOf(graph)}
            onStage={(made) => (stage.current = made)}
          />
          {callees && paletteBelow && (
            <>
              <p class="flame-middle">
                {visible(state.sandwich)}: {format(graph.total(0, metric), metricName)}. Callers are above, callees below.
              </p>
              <Panel
                {...callees}
                palette={paletteBelow}
                orientation="icicle"
                zoomed={zoomedBelow}
                chosen={chosenBelow}
                matches={matches?.names}
                title={`Callees of ${visible(state.sandwich)}: ${name}`}
                describe={describe(callees.graph, callees.labels)}
                onChoose={(node) => (setIsBelow(true), setChosenBelow(node))}
                onZoom={setZoomedBelow}
                onKey={keyOf(callees.graph)}
              />
            </>
          )}
          <Notes shown={shown} format={format} />
        </div>
        <aside class="flame-side">
          <Details
            {...{metric, sides, format, onCopy}}
            graph={active.graph}
            labels={active.labels}
            node={active.node}
            metrics={head.metrics}
            onChange={add}
            onSandwich={(of) => change({sandwich: of, zoom: ''})}
          />
          <Grid
            {...{metric, metricName, sides, format, onCopy}}
            metrics={head.metrics}
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

/** Says what the picture does not show. */
function Notes({shown: {head, graph}, format}: {shown: Shown; format: Format}) {
  const {nodes, bytes} = head.cut;
  return (
    <>
      {nodes > 0 && (
        <p class="flame-note">
          {nodes.toLocaleString('en')} small frames with all that they call, {format(bytes, 'bytes')} together, were left out.
        </p>
      )}
      {graph instanceof BottomUp && graph.isFull && (
        <p class="flame-note">There are too many frames to show all of them: focus on a function to see more.</p>
      )}
    </>
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

