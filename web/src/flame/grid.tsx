// The graph as a tree of rows: the same data for people who do not see the picture, and for those
// who would rather read. Only the rows in the window are elements.

import {useEffect, useMemo, useRef, useState} from 'preact/hooks';

import type {Sides} from './colors';
import type {Graph} from './graph';
import {changeText, percent, rowsText, selfTitle, type Copy, type Format, type Labels, type RowsAs} from './labels';
import {NONE} from './tree';

const ROW = 22;
/** Rows beyond the window's edges that are elements, too. */
const SPARE = 6;
/** Deeper rows are not moved further to the right. */
const INDENT_MAX = 16;
/** Elements end at some 16 million pixels of height in browsers. */
const ROWS_MAX = 500_000;

export interface GridProps {
  graph: Graph;
  labels: Labels;
  metric: number;
  metricName: string;
  sides: Sides | undefined;
  /** The names of all metrics, for copies of the rows. */
  metrics: readonly string[];
  format: Format;
  chosen: number;
  onChoose: (node: number) => void;
  onZoom: (node: number) => void;
  onCopy: Copy;
}

export function Grid(props: GridProps) {
  const {graph, sides, chosen, onChoose, onZoom} = props;
  const [opened, setOpened] = useState<{graph: Graph; nodes: Set<number>}>({graph, nodes: new Set([0])});
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({top: 0, height: 300});
  const nodes = useMemo(() => {
    const known = opened.graph === graph ? opened.nodes : [0];
    const shown = new Set(known);
    for (let above = chosen; above !== 0; ) shown.add((above = graph.parent(above)));
    return shown;
  }, [graph, opened, chosen]);
  const rows = useMemo(() => flatRows(graph, nodes), [graph, nodes]);
  const at = rows.indexOf(chosen);

  useEffect(() => {
    const element = scroller.current!;
    const observer = new ResizeObserver(() => setView({top: element.scrollTop, height: element.clientHeight}));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const element = scroller.current!;
    const top = at * ROW;
    if (at < 0) return;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW > element.scrollTop + element.clientHeight) element.scrollTop = top + ROW - element.clientHeight;
  }, [at]);

  const toggle = (node: number, isOpen: boolean): void => {
    const next = new Set(nodes);
    if (isOpen) next.add(node);
    else next.delete(node);
    // A closed row cannot hold the choice.
    if (!isOpen && isBelow(graph, chosen, node)) onChoose(node);
    setOpened({graph, nodes: next});
  };
  const key = (event: KeyboardEvent): void => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(view.height / ROW) - 1);
    const to = (index: number): void => onChoose(rows[Math.max(0, Math.min(rows.length - 1, index))]!);
    const actions: Record<string, () => void> = {
      ArrowDown: () => to(at + 1),
      ArrowUp: () => to(at - 1),
      PageDown: () => to(at + page),
      PageUp: () => to(at - page),
      Home: () => to(0),
      End: () => to(rows.length - 1),
      ArrowRight: () => (nodes.has(chosen) ? to(at + 1) : graph.hasChildren(chosen) && toggle(chosen, true)),
      ArrowLeft: () => (nodes.has(chosen) && graph.hasChildren(chosen) ? toggle(chosen, false) : onChoose(graph.parent(chosen))),
      Enter: () => onZoom(chosen),
    };
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  };

  const first = Math.max(0, Math.floor(view.top / ROW) - SPARE);
  const shown = rows.slice(first, Math.ceil((view.top + view.height) / ROW) + SPARE);
  // The chosen row is an element wherever it is, because the grid names it as its active one.
  if (at >= 0 && !shown.includes(chosen)) shown.push(chosen);
  return (
    <>
      <div
        class="flame-grid"
        ref={scroller}
        role="treegrid"
        tabIndex={0}
        aria-label={graph.isInverted ? 'Callers' : 'Calls'}
        aria-rowcount={rows.length + 1}
        aria-colcount={4}
        aria-activedescendant={at >= 0 ? `flame-row-${chosen}` : undefined}
        onKeyDown={key}
        onScroll={(event) => setView({top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight})}
      >
        <div class="flame-row flame-head" role="row" aria-rowindex={1}>
          <span role="columnheader">Function</span>
          <span role="columnheader">Total</span>
          <span role="columnheader">{sides ? 'Growth' : selfTitle(graph)}</span>
          <span role="columnheader">Share</span>
        </div>
        <div class="flame-rows" role="rowgroup" style={{height: `${rows.length * ROW}px`}}>
          {shown.map((node) => (
            <GridRow
              key={node}
              {...props}
              node={node}
              index={node === chosen ? at : first + shown.indexOf(node)}
              isOpen={nodes.has(node)}
              onToggle={(isOpen) => toggle(node, isOpen)}
            />
          ))}
        </div>
      </div>
      <Copies {...props} rows={rows} />
    </>
  );
}

interface GridRowProps extends GridProps {
  node: number;
  /** The number of the row, from 0. */
  index: number;
  isOpen: boolean;
  onToggle: (isOpen: boolean) => void;
}

function GridRow({node, index, isOpen, onToggle, ...grid}: GridRowProps) {
  const {graph, labels, metric, metricName, sides, format, chosen, onChoose, onZoom} = grid;
  const hasChildren = graph.hasChildren(node);
  const text = labels.text(node);
  const indent = Math.min(graph.depth(node), INDENT_MAX) * 10;
  const turn = (event: MouseEvent): void => {
    event.stopPropagation();
    if (hasChildren) onToggle(!isOpen);
  };
  return (
    <div
      id={`flame-row-${node}`}
      class={node === chosen ? 'flame-row flame-chosen' : 'flame-row'}
      role="row"
      aria-level={graph.depth(node) + 1}
      aria-rowindex={index + 2}
      aria-selected={node === chosen}
      aria-expanded={hasChildren ? isOpen : undefined}
      style={{top: `${index * ROW}px`}}
      onClick={() => onChoose(node)}
      onDblClick={() => onZoom(node)}
    >
      <span role="gridcell" style={{paddingLeft: `${indent}px`}} title={text}>
        <span class="flame-turn" aria-hidden="true" onClick={turn}>
          {hasChildren ? (isOpen ? '▾' : '▸') : ''}
        </span>
        {text}
      </span>
      <span role="gridcell">{format(graph.total(node, metric), metricName)}</span>
      <span role="gridcell">
        {sides ? changeText(graph, node, sides, format, metricName) : format(graph.self(node, metric), metricName)}
      </span>
      <span role="gridcell">{percent(graph.total(node, metric), graph.total(0, metric))}</span>
    </div>
  );
}

/** The buttons that copy the open rows. */
function Copies({graph, labels, metrics, rows, onCopy}: GridProps & {rows: readonly number[]}) {
  const copy = (as: RowsAs): void => {
    const file = `rows.${as === 'text' ? 'txt' : as.toLowerCase()}`;
    onCopy(rowsText(graph, labels, rows, metrics, as), `the rows as ${as}`, file);
  };
  return (
    <p class="flame-copy">
      Copy the rows as{' '}
      {(['text', 'CSV', 'JSON'] as const).map((as) => (
        <button type="button" onClick={() => copy(as)} aria-label={`Copy the rows as ${as}`}>
          {as}
        </button>
      ))}
    </p>
  );
}

/** Returns the nodes whose callers are all open, in the order of the rows. */
function flatRows(graph: Graph, opened: ReadonlySet<number>): number[] {
  const rows: number[] = [];
  for (let node = 0; rows.length < ROWS_MAX; ) {
    rows.push(node);
    let next = opened.has(node) ? graph.firstChild(node) : NONE;
    while (next === NONE && node !== 0) {
      next = graph.nextSibling(node);
      if (next === NONE) node = graph.parent(node);
    }
    if (next === NONE) break;
    node = next;
  }
  return rows;
}

function isBelow(graph: Graph, node: number, above: number): boolean {
  for (let here = node; here !== 0; here = graph.parent(here)) if (here === above) return here !== node;
  return above === 0 && node !== 0;
}
