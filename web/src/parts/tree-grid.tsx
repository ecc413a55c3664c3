// A tree of virtual rows, walked through by keys: a treegrid for screen readers.

import {useSignal} from '@preact/signals';
import {useRef} from 'preact/hooks';

import {share} from './format';
import {units} from './preferences';
import {rowAfterKey, ROW_HEIGHT, useHeight} from './grid';
import {frameWhere} from './rows';
import {hasChildren, levelOf, nodeName, type Tree, type TreeNode} from './tree-model';
import {scrollFor, visibleRows} from './virtual';

/** A column of numbers before the names. */
export interface TreeColumn {
  label: string;
  text: (node: TreeNode) => string;
  tone?: (node: TreeNode) => string;
}

interface Props {
  label: string;
  tree: Tree;
  shown: readonly number[];
  found: ReadonlySet<number> | undefined;
  columns: readonly TreeColumn[];
  isOpen: (index: number) => boolean;
  onToggle: (index: number, isDeep: boolean) => void;
  chosen: number | undefined;
  onChoose: (index: number | undefined) => void;
}

/** Levels beyond this one are not indented further; their number is shown. */
const INDENTED_MOST = 30;
let trees = 0;

export function TreeGrid({label, tree, shown, found, columns, isOpen, onToggle, chosen, onChoose}: Props) {
  const box = useRef<HTMLDivElement>(null);
  const id = useRef(`tree-${(trees += 1)}`).current;
  const scroll = useSignal(0);
  const active = useSignal(0);
  const height = useHeight(box);
  const room = Math.max(ROW_HEIGHT, height - ROW_HEIGHT - 4);
  const at = Math.min(active.value, Math.max(0, shown.length - 1));
  const go = (row: number): void => {
    active.value = row;
    if (box.current !== null) box.current.scrollTop = scrollFor(row, shown.length, ROW_HEIGHT, room, box.current.scrollTop);
    if (chosen !== undefined) onChoose(shown[row]);
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.target !== box.current) return;
    const index = shown[at];
    const next = rowAfterKey(event.key, at, shown.length, Math.max(1, Math.floor(room / ROW_HEIGHT) - 1));
    if (index === undefined) return;
    if (next !== undefined) go(next);
    else if (event.key === 'ArrowRight' && hasChildren(tree, index)) isOpen(index) ? go(Math.min(shown.length - 1, at + 1)) : onToggle(index, false);
    else if (event.key === 'ArrowLeft') {
      if (hasChildren(tree, index) && isOpen(index) && found === undefined) onToggle(index, false);
      else go(Math.max(0, shown.indexOf(tree.parents[index] as number)));
    } else if (event.key === '*') onToggle(index, true);
    else if (event.key === 'Enter' || event.key === ' ') onChoose(chosen === index ? undefined : index);
    else if (event.key === 'Escape' && chosen !== undefined) onChoose(undefined);
    else return;
    event.preventDefault();
  };
  const {first, end, height: full, top} = visibleRows(shown.length, ROW_HEIGHT, room, scroll.value);
  const template = `${`${units.value === 'bytes' ? 17 : 12}ch `.repeat(columns.length)} 9ch minmax(300px, 1fr)`;
  return (
    <div class="grid tree" role="treegrid" tabIndex={0} ref={box} aria-label={label} aria-rowcount={shown.length + 1}
      aria-activedescendant={shown.length > 0 && at >= first && at < end ? `${id}-${at}` : undefined}
      onKeyDown={onKey} onScroll={(event) => (scroll.value = event.currentTarget.scrollTop)}>
      <div class="line heads" role="row" aria-rowindex={1} style={{gridTemplateColumns: template}}>
        {columns.map((column) => <span role="columnheader" class="number head">{column.label}</span>)}
        <span role="columnheader" class="number head">share</span><span role="columnheader" class="head">function</span>
      </div>
      <div class="space" role="rowgroup" style={{height: `${full}px`}}>
        <div class="window" role="presentation" style={{transform: `translateY(${top}px)`}}>
          {shown.slice(first, end).map((index, offset) => {
            const row = first + offset;
            const node = tree.nodes[index] as TreeNode;
            const level = levelOf(tree, index);
            const indent = tree.indents[index] as number;
            const isParent = hasChildren(tree, index);
            const opened = isParent && (found !== undefined || isOpen(index));
            return (
              <div key={row} id={`${id}-${row}`} role="row" aria-level={level + 1} aria-rowindex={row + 2} aria-selected={index === chosen}
                {...(isParent ? {'aria-expanded': opened} : {})} class={`line${row === at ? ' active' : ''}${found?.has(index) === true ? ' found' : ''}`}
                style={{gridTemplateColumns: template}} onClick={() => { active.value = row; onChoose(index === chosen ? undefined : index); }}>
                {columns.map((column) => <span role="gridcell" class={`number ${column.tone?.(node) ?? ''}`}>{column.text(node)}</span>)}
                <span role="gridcell" class="number"><i class="bar" aria-hidden="true" style={{width: `${Math.min(100, 100 * Math.abs(node.share ?? 0))}%`}} /><span>{share(node.share ?? 0)}</span></span>
                <span role="gridcell" class="text" title={node.full ?? nodeName(node)} style={{paddingLeft: `${Math.min(indent, INDENTED_MOST) * 14}px`}}>
                  <span class="twist" aria-hidden="true" onClick={(event) => { event.stopPropagation(); active.value = row; if (isParent) onToggle(index, event.shiftKey); }}>{isParent ? opened ? '▾' : '▸' : ''}</span>
                  {indent > INDENTED_MOST ? <small class="deep">{level} </small> : null}
                  <span class="name">{nodeName(node)}</span><small>{frameWhere(node)}</small>
                </span>
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}
