// The address of a view: `#/VIEW?NAME=VALUE&…`. It holds the selection, which all views share, and
// the settings of the view. Names are those of the verbs' options, so that an address says which
// command gives the same figures.

/** A name and a value; a flag has an empty value. A name may stand repeatedly. */
export type Parameter = readonly [name: string, value: string];

/** All that the address says. */
export interface Place {
  view: string;
  parameters: readonly Parameter[];
}

/** The options that choose blocks. They stay when the view changes. */
export const SELECTION: readonly string[] = [
  'file', 'process', 'at', 'during', 'total', 'thread', 'module', 'not-module', 'function',
  'not-function', 'allocated-by', 'not-allocated-by', 'type', 'context', 'not-context', 'heap',
  'size', 'lifetime', 'mappings', 'wrapper', 'full-names',
];
const IS_SELECTION = new Set(SELECTION);

/** The options that may be given repeatedly. */
const REPEATED = new Set([
  'file', 'process', 'thread', 'module', 'not-module', 'function', 'not-function', 'allocated-by',
  'not-allocated-by', 'type', 'context', 'not-context', 'heap', 'wrapper', 'change', 'open',
]);

/** The longest address that is read, in characters. A longer one is cut between parameters. */
const LENGTH_MAX = 32 << 10;

/** True if an address is too long to be read as a whole. */
export const isCut = (hash: string): boolean => hash.length > LENGTH_MAX;

/** Reads the hash of an address. Unknown names stay: they may be another version's. */
export function parsePlace(hash: string, usual: string): Place {
  // A part of a value would be another value: what is not read to its end is left out.
  const read = isCut(hash) ? hash.slice(0, LENGTH_MAX).replace(/[&?][^&?]*$/, '') : hash;
  const text = read.replace(/^#?\/?/, '');
  const end = text.indexOf('?');
  const view = end < 0 ? text : text.slice(0, end);
  const parameters: Parameter[] = end < 0 ? [] : [...new URLSearchParams(text.slice(end + 1))];
  return {view: /^[a-z-]{1,40}$/.test(view) ? view : usual, parameters};
}

/** Returns the hash of an address. */
export function placeText({view, parameters}: Place): string {
  const query = new URLSearchParams(parameters.map(([name, value]) => [name, value])).toString();
  return `#/${view}${query === '' ? '' : `?${query}`}`;
}

export const isSelection = (name: string): boolean => IS_SELECTION.has(name);

/** Returns the first value of a name. */
export const valueOf = (parameters: readonly Parameter[], name: string): string | undefined =>
  parameters.find(([other]) => other === name)?.[1];

/** Returns all values of a name. */
export const valuesOf = (parameters: readonly Parameter[], name: string): string[] =>
  parameters.flatMap(([other, value]) => (other === name ? [value] : []));

/** Sets names to values. Undefined removes a name; a list sets a repeated one. */
export function withValues(
  parameters: readonly Parameter[],
  changes: Readonly<Record<string, string | readonly string[] | undefined>>,
): Parameter[] {
  const kept = parameters.filter(([name]) => !Object.hasOwn(changes, name));
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined) continue;
    for (const one of typeof value === 'string' ? [value] : value) kept.push([name, one]);
  }
  return kept;
}

/** Adds a condition to the selection, beside others of the same name if it may be repeated. */
export function narrowed(parameters: readonly Parameter[], name: string, value: string): Parameter[] {
  if (!REPEATED.has(name)) return withValues(parameters, {[name]: value});
  const isThere = parameters.some(([other, one]) => other === name && one === value);
  return isThere ? [...parameters] : [...parameters, [name, value]];
}

/** Removes one condition. */
export function without(parameters: readonly Parameter[], [name, value]: Parameter): Parameter[] {
  return parameters.filter(([other, one]) => other !== name || one !== value);
}

/** The selection alone, in a steady order. */
export function selectionOf(parameters: readonly Parameter[]): Parameter[] {
  return SELECTION.flatMap((name) => parameters.filter(([other]) => other === name));
}

/** The settings of a view alone. */
export const settingsOf = (parameters: readonly Parameter[]): Parameter[] =>
  parameters.filter(([name]) => !IS_SELECTION.has(name));

/** A condition of the selection, for people. */
export interface Chip {
  /** The parameters that go when the chip is removed. */
  parameters: readonly Parameter[];
  label: string;
}

/** Returns the conditions that the page shows as removable chips. Files have a list of their own. */
export function chipsOf(parameters: readonly Parameter[]): Chip[] {
  const chips: Chip[] = [];
  const during = valueOf(parameters, 'during');
  const isTotal = valueOf(parameters, 'total') !== undefined;
  if (during !== undefined && isTotal) {
    chips.push({parameters: [['during', during], ['total', '']], label: `allocated within ${during}`});
  } else if (during !== undefined) {
    const at = valueOf(parameters, 'at');
    const what = at === undefined ? 'and live at its end' : `and live at ${at}`;
    chips.push({parameters: [['during', during]], label: `allocated within ${during} ${what}`});
  } else if (isTotal) {
    chips.push({parameters: [['total', '']], label: 'all that was ever allocated'});
  }
  for (const [name, value] of selectionOf(parameters)) {
    if (['file', 'during', 'total'].includes(name)) continue;
    const words = name.replace(/^not-/, 'not ').replaceAll('-', ' ');
    if (name === 'at') chips.push({parameters: [[name, value]], label: value === 'peak' || value === 'end' ? `at the ${value}` : `at ${value}`});
    else chips.push({parameters: [[name, value]], label: value === '' ? words : `${words} ${value}`});
  }
  return chips;
}

/**
 * Returns a pattern that matches a name and nothing else. A name with characters that mean something
 * in patterns becomes a regular expression.
 */
export function exactPattern(name: string): string {
  const escaped = name.replace(/[\\^$.*+?()[\]{}|/]/g, (mark) => `\\${mark}`);
  return `/^${escaped}$/`;
}
