// The tree of calls.

import {useSignal} from '@preact/signals';
import {useMemo, useRef} from 'preact/hooks';

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {bytes, count, share} from '../parts/format';
import {useKeys} from '../parts/keys';
import {copy} from '../parts/message';
import {units} from '../parts/preferences';
import type {Amounts, Frame} from '../parts/rows';
import {RowActions, Stack} from '../parts/stack';
import {TreeGrid, type TreeColumn} from '../parts/tree-grid';
import {heaviestPath, levelOf, matches, nodeName, shownNodes, treeOf, type Tree, type TreeNode} from '../parts/tree-model';
import {exactPattern, type Parameter} from '../state/address';
import {optionsFor} from '../state/options';
import {change, parameters, setting} from '../state/state';
import {Unused} from './unused';
import type {ViewProps} from './views';

interface Answer { direction: string; metric: string; total: Amounts; left_out?: Amounts; nodes: readonly TreeNode[] }

function columnsOf(metric: string): TreeColumn[] {
  const own: TreeColumn = {label: 'own', text: (node) => node.own === undefined || node.own.bytes === 0 ? '' : bytes(node.own.bytes, units.value)};
  const amounts: TreeColumn[] = [
    {label: 'bytes', text: (node) => bytes(node.bytes, units.value)}, {label: 'blocks', text: (node) => count(node.blocks)},
  ];
  if (metric === 'temporary') amounts.unshift({label: 'temporary', text: (node) => count(node.temporary ?? 0)});
  return metric === 'blocks' ? [...amounts.reverse(), own] : [...amounts, own];
}

/** Returns the shown nodes as text, indented. */
function treeText(tree: Tree, shown: readonly number[]): string {
  return shown.map((index) => {
    const node = tree.nodes[index] as TreeNode;
    return `${bytes(node.bytes, units.value).padStart(12)} ${share(node.share ?? 0).padStart(8)} ${count(node.blocks).padStart(12)}  ${'  '.repeat(Math.min(200, levelOf(tree, index)))}${nodeName(node)}\n`;
  }).join('');
}

/** Returns the frames from a node outwards. */
function framesOf(tree: Tree, index: number, isBottomUp: boolean): Frame[] {
  const frames: Frame[] = [];
  for (let at = index; ; at = tree.parents[at] as number) {
    frames.push(tree.nodes[at] as TreeNode);
    if (tree.parents[at] === at) return isBottomUp ? frames.reverse() : frames;
  }
}

function Shown({answer, label}: {answer: Answer; label: string}) {
  const tree = useMemo(() => treeOf(answer.nodes), [answer]);
  const opened = useSignal<ReadonlySet<number> | undefined>(undefined);
  const chosen = useSignal<number | undefined>(undefined);
  const filterBox = useRef<HTMLInputElement>(null);
  const open = opened.value ?? heaviestPath(tree);
  const filter = setting('filter') ?? '';
  const {found, shown} = useMemo(() => filter === '' ? {found: undefined, shown: shownNodes(tree, (key) => open.has(key))} : matches(tree, filter), [tree, filter, opened.value]);
  const toggle = (index: number, isDeep: boolean): void => {
    const next = new Set(open);
    const isOpening = isDeep || !open.has(tree.keys[index] as number);
    for (let at = index; at < (isDeep || !isOpening ? tree.ends[index] as number : index + 1); at += 1) {
      if (isOpening) next.add(tree.keys[at] as number);
      else next.delete(tree.keys[at] as number);
    }
    opened.value = next;
  };
  const isBottomUp = answer.direction === 'bottom-up';
  const copyText = (): void => void copy(treeText(tree, shown), `${count(shown.length)} rows as text`, 'tree.txt');
  useKeys([
    {key: '/', does: 'search the tree', run: () => filterBox.current?.focus()},
    {key: '*', does: 'open all below a node', run: () => undefined},
    {key: 'c', does: 'copy the tree as it is shown', run: copyText},
  ], [tree, shown]);
  const node = chosen.value === undefined ? undefined : tree.nodes[chosen.value];
  return (
    <>
      <p class="total"><b>{bytes(answer.total.bytes, units.value)}</b> in <b>{count(answer.total.blocks)}</b> blocks
        {found === undefined ? null : <span class="soft" aria-live="polite">; {count(found.size)} matches</span>}</p>
      <div class="tools">
        <TreeTools />
        <label class="filter"><span class="unseen">Search the tree</span>
          <input type="search" ref={filterBox} placeholder="Search the tree  /" spellcheck={false} autocomplete="off" value={filter} onInput={(event) => change({filter: event.currentTarget.value === '' ? undefined : event.currentTarget.value}, true)} /></label>
        <span class="group" role="group" aria-label="Open and close">
          <button type="button" onClick={() => (opened.value = new Set(tree.keys))}>Open all</button>
          <button type="button" onClick={() => (opened.value = new Set())}>Close all</button>
          <button type="button" onClick={copyText}>Copy as text</button>
        </span>
      </div>
      <div class={`split${node === undefined ? '' : ' with-details'}`}>
        <TreeGrid label={label} tree={tree} shown={shown} found={found} columns={columnsOf(answer.metric)}
          isOpen={(index) => open.has(tree.keys[index] as number)} onToggle={toggle} chosen={chosen.value} onChoose={(index) => (chosen.value = index)} />
        {node === undefined || chosen.value === undefined ? null : (
          <aside class="details" aria-label="Details of the node">
            <div class="title"><h2>{nodeName(node)}</h2><button type="button" aria-label="Close the details" onClick={() => (chosen.value = undefined)}>✕</button></div>
            {node.full === undefined || node.full === null ? null : <p class="full">{node.full}</p>}
            <dl class="pairs">
              <dt>bytes</dt><dd>{bytes(node.bytes, units.value)} <small>({count(node.bytes)} B)</small></dd>
              <dt>blocks</dt><dd>{count(node.blocks)}</dd>
              {node.own === undefined ? null : <><dt>own</dt><dd>{bytes(node.own.bytes, units.value)} in {count(node.own.blocks)} blocks</dd></>}
              <dt>share</dt><dd>{share(node.share ?? 0)} of all</dd>
              {node.file === undefined || node.file === null ? null : <><dt>where</dt><dd>{node.file}{node.line === null ? '' : `:${node.line ?? ''}`}</dd></>}
              {node.module === undefined || node.module === null ? null : <><dt>module</dt><dd>{node.module}</dd></>}
            </dl>
            <RowActions condition={node.function === undefined ? undefined : ['function', exactPattern(node.function)]} />
            <Stack frames={framesOf(tree, chosen.value, isBottomUp)} title="The way here, innermost first" />
          </aside>
        )}
      </div>
    </>
  );
}

const THRESHOLDS: readonly (readonly [string, string])[] = [['1%', '1 % and more'], ['0.1%', '0.1 % and more'], ['0.01%', '0.01 % and more'], ['0.001%', '0.001 % and more']];

function TreeTools() {
  const isBottomUp = setting('bottom-up') !== undefined;
  return (
    <>
      <Choose label="from" value={isBottomUp ? 'bottom-up' : ''} options={[['', 'callers to callees'], ['bottom-up', 'callees to callers']]} onChange={(value) => change({'bottom-up': value === '' ? undefined : ''})} />
      <Choose label="metric" value={setting('metric') ?? 'bytes'} options={[['bytes', 'bytes'], ['blocks', 'blocks'], ['temporary', 'temporary allocations']]} onChange={(value) => change({metric: value === 'bytes' ? undefined : value})} />
      <Choose label="nodes of" value={setting('threshold') ?? '0.1%'} options={THRESHOLDS} onChange={(value) => change({threshold: value})} />
    </>
  );
}

export function TreeView({label}: ViewProps) {
  const {options, unused} = optionsFor('tree', parameters.value);
  const metric = setting('metric');
  const all: Parameter[] = [...options, ['threshold', setting('threshold') ?? '0.1%'], ...(setting('bottom-up') === undefined ? [] : [['bottom-up', ''] as const]),
    ...(metric === undefined ? [] : [['metric', metric] as const])];
  const asked = useAsk<Answer>('tree', all);
  return (
    <div class="fill">
      <Unused verb="tree" unused={unused} />
      <Answered asked={asked} what="Reading the tree of calls">{(answer) => answer.nodes.length === 0
        ? <><div class="tools"><TreeTools /></div><Nothing why="No block is chosen." hint="Remove conditions above, or choose another moment." /></>
        : <Shown answer={answer} label={label} />}</Answered>
    </div>
  );
}
