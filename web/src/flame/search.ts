// The search for frames by their names, and the share of the memory whose stacks have such a frame.

import {frameText} from './names';
import type {Tree} from './tree';

/** The frames that were found. */
export interface Matches {
  /** 1 for each name that was found, otherwise 0. */
  names: Uint8Array;
  /** The number of different names that were found. */
  count: number;
  /** The share of stacks with at least one such frame, from 0 to 1, by width. */
  share: number;
  /** The amount of these stacks in the metric of the widths. */
  amount: number;
}

/** The longest regular expression: longer ones are not what people type. */
const PATTERN_MAX = 200;

/**
 * Searches for frames whose text or module has this text in it, in upper or lower case. A text
 * between slashes is a regular expression. Returns the reason if it is not a valid one.
 */
export function search(tree: Tree, text: string): Matches | {error: string} {
  const isFound = tester(text);
  if (typeof isFound === 'string') return {error: isFound};
  const names = Uint8Array.from(tree.names, (name) =>
    Number(isFound(frameText(name, tree.by)) || (name.module !== undefined && isFound(name.module))),
  );
  // Only names that are in the tree count: the first of those that were merged.
  const seen = new Set<number>();
  let width = 0;
  let amount = 0;
  for (let node = 1; node < tree.name.length; ) {
    const name = tree.name[node]!;
    if (!names[name]) {
      node++;
      continue;
    }
    // The outermost match counts for all that is below it, so that no block counts twice.
    width += tree.width[node]!;
    amount += tree.total[tree.metric]![node]!;
    for (const end = tree.end[node]!; node < end; node++) {
      if (names[tree.name[node]!]) seen.add(tree.name[node]!);
    }
  }
  const all = tree.width[0]!;
  return {names, count: seen.size, share: all > 0 ? width / all : 0, amount};
}

function tester(text: string): ((name: string) => boolean) | string {
  if (text.length > 2 && text.startsWith('/') && text.endsWith('/')) {
    if (text.length > PATTERN_MAX) return `the expression is longer than ${PATTERN_MAX} characters`;
    try {
      const pattern = new RegExp(text.slice(1, -1), 'i');
      return (name) => pattern.test(name);
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }
  const wanted = text.toLowerCase();
  return (name) => name.toLowerCase().includes(wanted);
}
