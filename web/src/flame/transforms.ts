// Changes to a call tree: a list that the page keeps in its address and shows as chips. A change
// says for each stack which of its frames remain, without regard to any other stack.

import {functionText, isLike, sameNames} from './names';
import {NONE, rebuilt, Trie, type Tree, type WidthOf} from './tree';

/** A change to the stacks. Functions are given by their names, so that they outlive a tree. */
export type Transform =
  /** Keeps the stacks with this function, from its outermost call inwards. */
  | {kind: 'focus'; function: string}
  /** Keeps the stacks without this function. */
  | {kind: 'drop'; function: string}
  /** Leaves out the frames of this function; what it allocated itself is its caller's. */
  | {kind: 'merge'; function: string}
  /** Leaves out the frames of this module, or of those that are like it, with `*` and `?`. */
  | {kind: 'hide'; module: string}
  /**
   * Collapses recursion: `direct` only calls of a function by itself, `all` also those by way of
   * other functions.
   */
  | {kind: 'recursion'; calls: 'direct' | 'all'};

/** Returns the text that stands for a change in an address. `parseTransform` is the inverse. */
export function transformText(transform: Transform): string {
  switch (transform.kind) {
    case 'hide':
      return `hide:${transform.module}`;
    case 'recursion':
      return `recursion:${transform.calls}`;
    default:
      return `${transform.kind}:${transform.function}`;
  }
}

/** Reads a change, or returns `undefined` if the text stands for none. */
export function parseTransform(text: string): Transform | undefined {
  const colon = text.indexOf(':');
  const kind = text.slice(0, Math.max(colon, 0));
  const value = text.slice(colon + 1);
  if (value === '') return undefined;
  switch (kind) {
    case 'hide':
      return {kind, module: value};
    case 'recursion':
      return value === 'direct' || value === 'all' ? {kind, calls: value} : undefined;
    case 'focus':
    case 'drop':
    case 'merge':
      return {kind, function: value};
    default:
      return undefined;
  }
}

/** Returns the words of a change for people. */
export function transformTitle(transform: Transform): string {
  switch (transform.kind) {
    case 'focus':
      return `only ${transform.function}`;
    case 'drop':
      return `without stacks through ${transform.function}`;
    case 'merge':
      return `without frames of ${transform.function}`;
    case 'hide':
      return `without frames in ${transform.module}`;
    case 'recursion':
      return transform.calls === 'direct' ? 'direct recursion collapsed' : 'recursion collapsed';
  }
}

/**
 * Applies the changes in their order, to a tree whose frames are functions or lines. The work is
 * proportional to the nodes times the changes.
 */
export function transformed(tree: Tree, transforms: readonly Transform[], width: WidthOf): Tree {
  return transforms.reduce((done, transform) => apply(done, transform, width), tree);
}

function apply(tree: Tree, transform: Transform, width: WidthOf): Tree {
  switch (transform.kind) {
    case 'focus':
      return focused(tree, functionsNamed(tree, transform.function), width);
    case 'drop':
      return dropped(tree, functionsNamed(tree, transform.function), width);
    case 'merge':
      return merged(tree, functionsNamed(tree, transform.function), width);
    case 'hide': {
      // A module that the tree has is meant itself, even if its name could be a pattern.
      const isName = tree.names.some(({module}) => module === transform.module);
      const isHidden = (module = ''): boolean => isName ? module === transform.module : isLike(module, transform.module);
      const hidden = Uint8Array.from(tree.names, ({module}) => Number(isHidden(module)));
      return merged(tree, hidden, width);
    }
    case 'recursion':
      return transform.calls === 'direct' ? withoutDirectRecursion(tree, width) : withoutRecursion(tree, width);
  }
}

/** Returns for each name 1 if it is of the function, otherwise 0. */
export function functionsNamed(tree: Pick<Tree, 'names'>, name: string): Uint8Array {
  return Uint8Array.from(tree.names, (frame) => Number(functionText(frame) === name));
}

/**
 * Returns the callees of a function, which is the root. Of recursive calls the outermost is it, so
 * that a block is counted once.
 */
export function calleesOf(tree: Tree, functions: Uint8Array, width: WidthOf): Tree {
  const root = tree.name.findIndex((name, node) => node > 0 && functions[name] === 1);
  const trie = new Trie(tree.name.length);
  trie.root(tree.name[Math.max(0, root)]!);
  const place = new Int32Array(tree.name.length).fill(NONE);
  for (let node = 1; node < place.length; node++) {
    const above = place[tree.parent[node]!]!;
    const name = tree.name[node]!;
    place[node] = above !== NONE ? trie.child(above, name) : functions[name] ? 0 : NONE;
  }
  return rebuilt(tree, trie, place, width);
}

function start(tree: Tree): {trie: Trie; place: Int32Array} {
  const trie = new Trie(tree.name.length);
  trie.root(tree.name[0]!);
  return {trie, place: new Int32Array(tree.name.length)};
}

function focused(tree: Tree, wanted: Uint8Array, width: WidthOf): Tree {
  const {trie, place} = start(tree);
  place[0] = NONE;
  for (let node = 1; node < place.length; node++) {
    const above = place[tree.parent[node]!]!;
    const name = tree.name[node]!;
    place[node] = above !== NONE ? trie.child(above, name) : wanted[name] ? trie.child(0, name) : NONE;
  }
  return rebuilt(tree, trie, place, width);
}

function dropped(tree: Tree, unwanted: Uint8Array, width: WidthOf): Tree {
  const {trie, place} = start(tree);
  for (let node = 1; node < place.length; node++) {
    const above = place[tree.parent[node]!]!;
    const name = tree.name[node]!;
    place[node] = above === NONE || unwanted[name] ? NONE : trie.child(above, name);
  }
  return rebuilt(tree, trie, place, width);
}

function merged(tree: Tree, hidden: Uint8Array, width: WidthOf): Tree {
  const {trie, place} = start(tree);
  for (let node = 1; node < place.length; node++) {
    const above = place[tree.parent[node]!]!;
    const name = tree.name[node]!;
    place[node] = hidden[name] ? above : trie.child(above, name);
  }
  return rebuilt(tree, trie, place, width);
}

/**
 * Replaces a run of calls of one function by the innermost, which is the one whose line made the
 * next call.
 */
function withoutDirectRecursion(tree: Tree, width: WidthOf): Tree {
  const {trie, place} = start(tree);
  const functions = sameNames(tree.names, 'function');
  for (let node = 1; node < place.length; node++) {
    const above = place[tree.parent[node]!]!;
    const name = tree.name[node]!;
    const isSame = above !== 0 && functions[trie.name[above]!] === functions[name];
    place[node] = trie.child(isSame ? trie.parent[above]! : above, name);
  }
  return rebuilt(tree, trie, place, width);
}

/**
 * Erases the loops of each stack, in the order in which they were made, as the loop-erased random
 * walk does: when a function is called that is in the stack already, the frames from there on go,
 * and the new call takes the place of the old one. So a stack without recursion stays as it is, and
 * no function is twice in a stack.
 *
 * The walk through the tree keeps the present stack with its loops erased. A step changes one entry
 * of it, even if it removes many, because entries beyond its end stay until they are overwritten.
 * So steps back undo it at the same cost, and the work is proportional to the number of nodes.
 */
function withoutRecursion(tree: Tree, width: WidthOf): Tree {
  const {trie, place} = start(tree);
  const functions = sameNames(tree.names, 'function');
  const deepest = tree.depth.reduce((a, b) => Math.max(a, b), 0);
  // The present stack by depth, as nodes of the trie.
  const stack = new Int32Array(deepest + 1).fill(NONE);
  // The latest call of each function on the way to the present node, as a node of the trie.
  const latest = new Int32Array(tree.names.length).fill(NONE);
  // The entries that the step to each depth of `tree` has overwritten.
  const stackBefore = new Int32Array(deepest + 1);
  const latestBefore = new Int32Array(deepest + 1);
  const at = new Int32Array(deepest + 1);
  stack[0] = 0;

  const undo = (depth: number): void => {
    const node = at[depth]!;
    stack[trie.depth[place[node]!]!] = stackBefore[depth]!;
    latest[functions[tree.name[node]!]!] = latestBefore[depth]!;
  };
  let depthNow = 0;
  for (let node = 1; node < place.length; node++) {
    const depth = tree.depth[node]!;
    for (; depthNow >= depth; depthNow--) undo(depthNow);
    const above = place[tree.parent[node]!]!;
    const key = functions[tree.name[node]!]!;
    const earlier = latest[key]!;
    const isInStack =
      earlier !== NONE && trie.depth[earlier]! <= trie.depth[above]! && stack[trie.depth[earlier]!] === earlier;
    const here = trie.child(isInStack ? trie.parent[earlier]! : above, tree.name[node]!);
    place[node] = here;
    at[depth] = node;
    stackBefore[depth] = stack[trie.depth[here]!]!;
    latestBefore[depth] = latest[key]!;
    stack[trie.depth[here]!] = here;
    latest[key] = here;
    depthNow = depth;
  }
  return rebuilt(tree, trie, place, width);
}
