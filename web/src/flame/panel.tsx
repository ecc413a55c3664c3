// A stage in the page: the canvas with its name, a bar that scrolls the rows, and the tooltip.

import {useEffect, useRef, useState} from 'preact/hooks';

import type {Palette} from './colors';
import type {Orientation} from './draw';
import type {Graph} from './graph';
import type {Labels} from './labels';
import {Stage} from './stage';
import {NONE} from './tree';

export interface PanelProps {
  graph: Graph;
  labels: Labels;
  palette: Palette;
  orientation: Orientation;
  zoomed: number;
  chosen: number;
  matches: Uint8Array | undefined;
  /** The name of the picture for those who do not see it. */
  title: string;
  /** The lines of the tooltip. */
  describe: (node: number) => string[];
  onChoose: (node: number) => void;
  onZoom: (node: number) => void;
  onKey: (event: KeyboardEvent, node: number) => boolean;
  /** Gets the stage when it is made, for exports. */
  onStage?: (stage: Stage | undefined) => void;
}

interface Tip {
  node: number;
  x: number;
  y: number;
}

export function Panel(props: PanelProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const stage = useRef<Stage>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const [tip, setTip] = useState<Tip>();
  const [rows, setRows] = useState({begin: 0, end: 1});

  useEffect(() => {
    const made = new Stage(canvas.current!, {
      onChoose: (node) => latest.current.onChoose(node),
      onZoom: (node) => latest.current.onZoom(node),
      onKey: (event, node) => latest.current.onKey(event, node),
      onHover: (node, x, y) => setTip(node === undefined ? undefined : {node, x, y}),
      onScroll: (begin, end) => setRows((known) => (known.begin === begin && known.end === end ? known : {begin, end})),
    });
    stage.current = made;
    latest.current.onStage?.(made);
    return () => {
      latest.current.onStage?.(undefined);
      made.close();
    };
  }, []);

  const {graph, labels, palette, orientation, zoomed, chosen, matches} = props;
  useEffect(() => {
    const {current} = stage;
    if (current === undefined) return;
    current.orientation = orientation;
    current.matches = matches;
    current.color(palette);
    current.show(graph, labels, zoomed, chosen);
  }, [graph, labels, palette, orientation, zoomed, matches]);
  useEffect(() => {
    if (stage.current !== undefined && stage.current.chosen !== chosen) stage.current.choose(chosen);
  }, [chosen]);

  const said = `${labels.text(chosen)}: ${props.describe(chosen).slice(1).join(', ')}`;
  return (
    <div class="flame-panel">
      <div class="flame-canvas">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-roledescription="flame graph"
          aria-label={`${props.title}. ${said}`}
        />
        <p class="flame-unseen" aria-live="polite">
          {said}
        </p>
        {tip !== undefined && <Tooltip tip={tip} canvas={canvas.current!} describe={props.describe} />}
      </div>
      <Scrollbar {...rows} orientation={orientation} onScroll={(part) => stage.current?.scrollTo(part)} />
    </div>
  );
}

function Tooltip({tip, canvas, describe}: {tip: Tip; canvas: HTMLCanvasElement; describe: (node: number) => string[]}) {
  const lines = tip.node === NONE ? ['Frames too narrow to be shown', 'Click to zoom in'] : describe(tip.node);
  const isLeft = tip.x > canvas.clientWidth / 2;
  const isAbove = tip.y > canvas.clientHeight / 2;
  const style = {
    left: isLeft ? 'auto' : `${tip.x + 14}px`,
    right: isLeft ? `${canvas.clientWidth - tip.x + 14}px` : 'auto',
    top: isAbove ? 'auto' : `${tip.y + 16}px`,
    bottom: isAbove ? `${canvas.clientHeight - tip.y + 12}px` : 'auto',
  };
  return (
    <div class="flame-tip" style={style} aria-hidden="true">
      {lines.map((line, at) => (at === 0 ? <strong>{line}</strong> : <div>{line}</div>))}
    </div>
  );
}

interface ScrollbarProps {
  begin: number;
  end: number;
  orientation: Orientation;
  onScroll: (part: number) => void;
}

/** A bar for the pointer. The keyboard has the keys of the canvas. */
function Scrollbar({begin, end, orientation, onScroll}: ScrollbarProps) {
  const bar = useRef<HTMLDivElement>(null);
  const held = useRef<number>(undefined);
  const isHidden = begin <= 0 && end >= 1;
  const part = (event: PointerEvent): number => {
    const {top, height} = bar.current!.getBoundingClientRect();
    const from = (event.clientY - top) / height;
    return orientation === 'icicle' ? from : 1 - from;
  };
  const down = (event: PointerEvent): void => {
    const at = part(event);
    const isOnThumb = at >= begin && at <= end;
    held.current = isOnThumb ? at - begin : (end - begin) / 2;
    if (!isOnThumb) onScroll(at - held.current);
    bar.current!.setPointerCapture(event.pointerId);
  };
  const thumb = {[orientation === 'icicle' ? 'top' : 'bottom']: `${begin * 100}%`, height: `${(end - begin) * 100}%`};
  return (
    <div
      ref={bar}
      class={isHidden ? 'flame-scroll flame-idle' : 'flame-scroll'}
      aria-hidden="true"
      onPointerDown={down}
      onPointerMove={(event) => held.current !== undefined && onScroll(part(event) - held.current)}
      onPointerUp={() => (held.current = undefined)}
    >
      {!isHidden && <div class="flame-thumb" style={thumb} />}
    </div>
  );
}
