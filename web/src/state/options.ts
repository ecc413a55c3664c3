// The options of a question: the selection, without what the verb does not know.

import {selectionOf, type Parameter} from './address';

/** Verbs that are asked about a moment. */
const WITH_MOMENT = new Set(['summary', 'top', 'types', 'tree', 'leaks', 'sizes', 'blocks', 'diff', 'columns']);
/** Verbs that can count all that was ever allocated. */
const WITH_TOTAL = new Set(['top', 'types', 'tree', 'sizes', 'diff', 'columns']);
/** Verbs that cannot be asked about a range of time. */
const WITHOUT_RANGE = new Set(['advise']);

export interface Question {
  options: Parameter[];
  /** What of the selection the verb cannot use, for people. */
  unused: string[];
}

/** Returns the options that ask a verb about the selection. */
export function optionsFor(verb: string, parameters: readonly Parameter[]): Question {
  const isTotal = parameters.some(([name]) => name === 'total');
  const unused: string[] = [];
  const options = selectionOf(parameters).filter(([name]) => {
    if (name === 'at' && isTotal && WITH_TOTAL.has(verb)) return false;
    if (name === 'at' && !WITH_MOMENT.has(verb)) return unused.push('the moment') < 0;
    if (name === 'total' && !WITH_TOTAL.has(verb)) return unused.push('“all that was ever allocated”') < 0;
    if (name === 'during' && WITHOUT_RANGE.has(verb)) return unused.push('the range of time') < 0;
    return true;
  });
  if (!options.some(([name]) => name === 'file')) options.unshift(['file', '0']);
  // Only a comparison is asked about several files and moments. Others get the first file, and the
  // later one of two moments.
  if (verb === 'diff') return {options, unused};
  const file = options.find(([name]) => name === 'file');
  const moment = options.findLast(([name]) => name === 'at');
  return {options: options.filter((option) => option[0] === 'file' ? option === file : option[0] !== 'at' || option === moment), unused};
}

/** Returns the command that prints the same figures. */
export function commandText(verb: string, options: readonly Parameter[], fileName: (id: string) => string): string {
  const quoted = (text: string): string => /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
  const files = options.filter(([name]) => name === 'file').map(([, id]) => quoted(fileName(id)));
  const flags = options.filter(([name]) => name !== 'file').map(([name, value]) => value === '' ? `--${name}` : `--${name} ${quoted(value)}`);
  return ['heapledger', verb.replace('/', ' '), ...files, ...flags].join(' ');
}
