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
  context?: readonly unknown[] | string | null;
  scope?: string | null;
  task?: string | null;
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

function contextText(context: readonly unknown[] | string | null): string {
  if (typeof context === 'string') return context;
  if (context === null || context.length === 0) return '(no context)';
  return context.map((scope) => {
    if (scope === null || typeof scope !== 'object') return String(scope);
    const {name, value} = scope as {name?: unknown; value?: unknown};
    return `${String(name ?? '')}${value === undefined || value === null || value === '' ? '' : `{${String(value)}}`}`;
  }).join(' > ');
}

/** Returns the name of a row. */
export function rowName(row: Row): string {
  if (row.type !== undefined) return row.short ?? row.type;
  if (row.context !== undefined) return contextText(row.context);
  if (row.scope !== undefined) return row.scope ?? '(no context)';
  if (row.task !== undefined) return row.task ?? '(no task)';
  if (row.heap !== undefined) return row.heap ?? '(no heap)';
  if (row.size !== undefined) return `${row.size} bytes`;
  if (row.tid !== undefined) return `${row.name ?? 'thread'} (${row.tid})`;
  if (row.pid !== undefined) return `process ${row.pid}`;
  const owner = row.owner ?? undefined;
  if (owner?.function !== undefined) return owner.function;
  if (row.function !== undefined) return row.function;
  if (row.part !== undefined) return row.part;
  if (row.file !== undefined && row.file !== null) return row.file;
  return row.module ?? row.name ?? '(unknown)';
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
export function rowMore(row: Row): string {
  if (row.type !== undefined || row.context !== undefined || row.size !== undefined || row.pid !== undefined) return '';
  const frame = row.owner?.function === undefined ? row : row.owner;
  if (frame.function === undefined) return '';
  const via = row.via?.function === undefined ? '' : `, via ${row.via.function}`;
  return `${frameWhere(frame)}${via}`;
}

/** Returns the condition that chooses what a row stands for, if an option can say it. */
export function rowCondition(row: Row, by: string): Parameter | undefined {
  switch (by) {
    case 'type': return row.type === undefined ? undefined : ['type', exactPattern(row.type)];
    case 'module': return row.module === undefined || row.module === null ? undefined : ['module', exactPattern(row.module)];
    case 'context': return row.context === undefined ? undefined : ['context', contextText(row.context)];
    case 'scope': return row.scope === undefined || row.scope === null ? undefined : ['context', row.scope];
    case 'task': return row.task === undefined || row.task === null ? undefined : ['context', row.task];
    case 'heap': return row.heap === undefined ? undefined : ['heap', row.heap ?? '(no heap)'];
    case 'thread': return row.tid === undefined ? undefined : ['thread', String(row.tid)];
    case 'process': return row.pid === undefined ? undefined : ['process', String(row.pid)];
    case 'size': return row.size === undefined ? undefined : ['size', String(row.size)];
    case 'file': return undefined;
    default: {
      const name = row.owner?.function ?? row.function;
      return name === undefined ? undefined : ['allocated-by', exactPattern(name)];
    }
  }
}

/** The opposite of a condition, for the options that have one. */
export function opposite([name, value]: Parameter): Parameter | undefined {
  return ['function', 'allocated-by', 'module', 'context'].includes(name) ? [`not-${name}`, value] : undefined;
}
