// The search for frames by their names, and the share of the memory whose stacks have such a frame.

import {frameText, isLike} from './names';
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

/** The longest text with wildcards: longer ones are not what people type. */
const PATTERN_MAX = 200;

/**
 * Searches for frames whose text or module has this text in it, in upper or lower case. `*` stands
 * for any characters and `?` for one. There are no regular expressions: one of an address that
 * somebody made can take longer than the page lives, and nothing could stop it here. Returns the
 * reason if the text cannot be searched for.
 */
export function search(tree: Tree, text: string): Matches | {error: string} {
  const isPattern = /[*?]/.test(text);
  if (isPattern && text.length > PATTERN_MAX) return {error: `a text with * or ? may have ${PATTERN_MAX} characters`};
  const wanted = text.toLowerCase();
  const isFound = (name: string): boolean => isPattern ? isLike(name, `*${wanted}*`) : name.toLowerCase().includes(wanted);
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
