// The options of a question: the selection, without what the verb does not know.

import {selectionOf, type Parameter} from './address';

/** Verbs that are asked about a moment. */
const WITH_MOMENT = new Set([
  'summary', 'top', 'types', 'tree', 'leaks', 'sizes', 'blocks', 'diff', 'columns', 'flame', 'callers', 'callees', 'rss', 'dmd',
]);
/** Verbs that can count all that was ever allocated. */
const WITH_TOTAL = new Set(['top', 'types', 'tree', 'sizes', 'diff', 'columns', 'flame', 'callers', 'callees']);
/** Verbs that cannot be asked about a range of time. */
const WITHOUT_RANGE = new Set(['advise']);
/** The whole selection of verbs that do not choose blocks. */
const CHOOSES: Readonly<Record<string, readonly string[]>> = {
  info: ['mappings', 'wrapper', 'full-names'], rss: ['at', 'process', 'wrapper', 'full-names'], dmd: ['at', 'process', 'wrapper'],
};
/** Verbs that are asked with words which the page has no input for. */
const WITH_WORDS = new Set(['callers', 'callees', 'heap/node', 'heap/paths']);

/** True if a verb can be asked with options alone. */
export const isAskable = (verb: string): boolean => !WITH_WORDS.has(verb);

/** True if a verb compares two files, or two moments. */
export const isComparison = (verb: string): boolean => verb === 'diff' || verb.endsWith('/diff');

export interface Question {
  options: Parameter[];
  /** The parts of the selection that the verb cannot use, for people. */
  unused: string[];
}

const wordsOf = (name: string): string => name === 'during' ? 'the range of time' : name.replace(/^not-/, 'not ').replaceAll('-', ' ');

/** Returns the options that ask a verb about the selection. */
export function optionsFor(verb: string, parameters: readonly Parameter[]): Question {
  const isTotal = parameters.some(([name]) => name === 'total');
  const unused: string[] = [];
  const chooses = CHOOSES[verb] ?? (verb.includes('/') ? [] : undefined);
  const options = selectionOf(parameters).filter(([name]) => {
    if (name !== 'file' && name !== 'total' && name !== 'at' && chooses?.includes(name) === false) return unused.push(wordsOf(name)) < 0;
    if (name === 'at' && isTotal && WITH_TOTAL.has(verb)) return false;
    if (name === 'at' && !WITH_MOMENT.has(verb)) return unused.push('the moment') < 0;
    if (name === 'total' && !WITH_TOTAL.has(verb)) return unused.push('“all that was ever allocated”') < 0;
    if (name === 'during' && WITHOUT_RANGE.has(verb)) return unused.push('the range of time') < 0;
    return true;
  });
  if (!options.some(([name]) => name === 'file')) options.unshift(['file', '0']);
  // Only a comparison is asked about several files and moments. Others get the first file, and the
  // later one of two moments.
  if (isComparison(verb)) return {options, unused: [...new Set(unused)]};
  const file = options.find(([name]) => name === 'file');
  const moment = options.findLast(([name]) => name === 'at');
  return {options: options.filter((option) => option[0] === 'file' ? option === file : option[0] !== 'at' || option === moment), unused: [...new Set(unused)]};
}

/** Quotes a text for a shell, if that is needed. */
export const quoted = (text: string): string => /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** Returns the command that prints the same figures. */
export function commandText(verb: string, options: readonly Parameter[], fileName: (id: string) => string): string {
  const files = options.filter(([name]) => name === 'file').map(([, id]) => quoted(fileName(id)));
  const flags = options.filter(([name]) => name !== 'file').map(([name, value]) => value === '' ? `--${name}` : `--${name} ${quoted(value)}`);
  return ['heapledger', verb.replace('/', ' '), ...files, ...flags].join(' ');
}
