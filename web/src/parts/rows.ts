// Rows of the verbs' answers: their names, and the condition that chooses what a row stands for.

import {exactPattern, type Parameter} from '../state/address';
import {baseName} from './format';

export interface Amounts {
  bytes: number;
  blocks: number;
}

/** A frame of a stack. */
export interface Frame {
  function?: string;
  full?: string | null;
  module?: string | null;
  file?: string | null;
  line?: number | null;
  inlined?: boolean;
}

/** A scope of a context. */
export interface Scope {
  name: string;
  value: string | null;
}

/** A row of `top`, `leaks`, `temporary`, `types`, `diff`: the fields depend on what is summed up by. */
export interface Row extends Partial<Amounts>, Frame {
  share?: number;
  temporary?: number;
  slop?: number;
  sites?: number | unknown[];
  via?: Frame | null;
  owner?: Frame | null;
  stack?: readonly Frame[];
  type?: string;
  short?: string;
  context?: readonly Scope[] | null;
  scope?: string | null;
  task?: Scope | null;
  heap?: string | null;
  size?: number;
  pid?: number;
  tid?: number;
  thread?: number;
  name?: string;
  part?: string;
  growth?: number;
  before?: Amounts;
  after?: Amounts;
}

/** The answer of a verb that ranks. */
export interface Ranks {
  by: string;
  metric: string;
  at: string;
  total: Amounts & {temporary?: number; slop?: number};
  left_out?: Amounts;
  rows_all: number;
  rows: readonly Row[];
}

/** The words of `--by`, and what they sum up by. */
export const BY: readonly (readonly [value: string, label: string])[] = [
  ['owner', 'owner'], ['function', 'function'], ['line', 'line'], ['file', 'source file'], ['module', 'module'], ['type', 'type'],
  ['site', 'site'], ['stack', 'stack'], ['context', 'context'], ['scope', 'scope'], ['task', 'task'], ['heap', 'heap'],
  ['thread', 'thread'], ['process', 'process'], ['size', 'size'],
];

/** Those that the verbs answer from the events: the more were recorded, the longer it takes. */
export const BY_EVENTS = new Set(['thread', 'process', 'size']);

/** The names that patterns of contexts and heaps match when there is none. */
const NO_CONTEXT = '(no context)';
const NO_HEAP = '(no heap)';

const scopeText = ({name, value}: Scope): string => value === null ? name : `${name}{${value}}`;

function contextText(context: readonly Scope[] | null): string {
  return context === null || context.length === 0 ? NO_CONTEXT : context.map(scopeText).join(' > ');
}

/** Returns the name of a row of an answer that is summed up by `by`. */
export function rowName(row: Row, by: string): string {
  if (by === 'file') return row.file ?? row.module ?? '(unknown file)';
  if (by === 'function' && row.function !== undefined) return row.function;
  if (row.type !== undefined) return row.short ?? row.type;
  // Sites have a context and a heap, too: those are not their names.
  if (row.owner?.function !== undefined) return row.owner.function;
  if (row.function !== undefined) return row.function;
  if (row.context !== undefined) return contextText(row.context);
  if (row.scope !== undefined) return row.scope ?? NO_CONTEXT;
  if (row.task !== undefined) return row.task === null ? '(no task)' : scopeText(row.task);
  if (row.heap !== undefined) return row.heap ?? NO_HEAP;
  if (row.size !== undefined) return `${row.size} bytes`;
  if (row.tid !== undefined) return `${row.name ?? 'thread'} (${row.tid})`;
  if (row.pid !== undefined) return `process ${row.pid}`;
  if (row.part !== undefined) return row.part;
  return row.file ?? row.module ?? row.name ?? '(unknown)';
}

/** Returns a place in the source, or the module: short, for a line. */
export function frameWhere(frame: Frame): string {
  if (frame.file !== undefined && frame.file !== null) {
    const parts = frame.file.split('/');
    const short = parts.length > 3 ? `…/${parts.slice(-2).join('/')}` : frame.file;
    return `${short}${frame.line === undefined || frame.line === null ? '' : `:${frame.line}`}`;
  }
  return frame.module === undefined || frame.module === null ? '' : baseName(frame.module);
}

/** Returns the less important part of a row's name. */
export function rowMore(row: Row, by: string): string {
  if (by === 'file' || row.type !== undefined || row.size !== undefined || row.pid !== undefined) return '';
  const frame = by === 'function' || row.owner?.function === undefined ? row : row.owner;
  if (frame.function === undefined) return '';
  const via = by === 'function' || row.via?.function === undefined ? '' : `, via ${row.via.function}`;
  const context = row.context === undefined || row.context === null ? '' : `, in ${contextText(row.context)}`;
  const heap = row.heap === undefined || row.heap === null ? '' : `, of heap ${row.heap}`;
  return `${frameWhere(frame)}${via}${context}${heap}`.replace(/^, /, '');
}

/** Returns the condition that chooses what a row stands for, if an option can say it. */
export function rowCondition(row: Row, by: string): Parameter | undefined {
  switch (by) {
    case 'type': return row.type === undefined ? undefined : ['type', exactPattern(row.type)];
    case 'module': return row.module === undefined || row.module === null ? undefined : ['module', exactPattern(row.module)];
    case 'context': return row.context === undefined ? undefined : ['context', exactPattern(contextText(row.context))];
    case 'scope': return row.scope === undefined ? undefined : ['context', exactPattern(row.scope ?? NO_CONTEXT)];
    // No pattern chooses the blocks without a task: they may have other scopes.
    case 'task': return row.task === undefined || row.task === null ? undefined : ['context', exactPattern(scopeText(row.task))];
    case 'heap': return row.heap === undefined ? undefined : ['heap', exactPattern(row.heap ?? NO_HEAP)];
    case 'thread': return row.tid === undefined ? undefined : ['thread', String(row.tid)];
    case 'process': return row.pid === undefined ? undefined : ['process', String(row.pid)];
    case 'size': return row.size === undefined ? undefined : ['size', String(row.size)];
    // No option chooses these. The owner of a line has other lines.
    case 'file': case 'line': case 'part': return undefined;
    default: {
      const name = (by === 'function' ? undefined : row.owner?.function) ?? row.function;
      return name === undefined ? undefined : ['allocated-by', exactPattern(name)];
    }
  }
}

/** True if the condition of a row chooses more than the row: all that its owner allocates. */
export const isOwners = (by: string): boolean => by === 'site' || by === 'stack';

/** The opposite of a condition, for the options that have one. */
export function opposite([name, value]: Parameter): Parameter | undefined {
  return ['function', 'allocated-by', 'module', 'context'].includes(name) ? [`not-${name}`, value] : undefined;
}
