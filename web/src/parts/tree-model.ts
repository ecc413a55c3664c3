// Trees as data: nodes in preorder with their depths, of which those below open nodes are shown.
// Nothing here calls itself: stacks are thousands of frames deep.

import type {Frame} from './rows';

export interface TreeNode extends Frame {
  depth: number;
  bytes: number;
  blocks: number;
  temporary?: number;
  share?: number;
  own?: {bytes: number; blocks: number};
  name?: string | null;
}

export interface Tree {
  nodes: readonly TreeNode[];
  /** For each node the index behind its last descendant. */
  ends: Uint32Array;
  /** For each node the index of its parent; its own index for a root. */
  parents: Uint32Array;
  /** For each node a number that the same path of names has in another tree, too. */
  keys: Float64Array;
  /** For each node the number of nodes above it that have several children: chains stay in line. */
  indents: Uint32Array;
}

export const nodeName = (node: TreeNode): string => node.function ?? node.name ?? node.module ?? node.file ?? '(unknown)';

/** Mixes a text into a hash of at most 53 bits (two lanes of FNV-1a). */
function mix(hash: number, text: string): number {
  let low = (hash | 0) ^ 0x811c9dc5;
  let high = Math.floor(hash / 2 ** 32) ^ 0x1b873593;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    low = Math.imul(low ^ code, 0x01000193);
    high = Math.imul(high ^ code, 0x85ebca6b);
  }
  return ((high >>> 0) & 0x1fffff) * 2 ** 32 + (low >>> 0);
}

/** Reads nodes in preorder. Depths that jump are taken as one below the node before. */
export function treeOf(nodes: readonly TreeNode[]): Tree {
  const ends = new Uint32Array(nodes.length);
  const parents = new Uint32Array(nodes.length);
  const keys = new Float64Array(nodes.length);
  const path: number[] = [];
  for (let index = 0; index < nodes.length; index += 1) {
    const node = nodes[index] as TreeNode;
    while (path.length > Math.max(0, node.depth)) ends[path.pop() as number] = index;
    const parent = path.at(-1);
    parents[index] = parent ?? index;
    keys[index] = mix(parent === undefined ? 0 : keys[parent] as number, `${nodeName(node)}\n${node.module ?? ''}`);
    path.push(index);
  }
  for (const index of path) ends[index] = nodes.length;
  const indents = new Uint32Array(nodes.length);
  for (let index = 0; index < nodes.length; index += 1) {
    const parent = parents[index] as number;
    // An only child begins right behind its parent and ends where the parent ends.
    const isOnly = parent !== index && index === parent + 1 && ends[index] === ends[parent];
    indents[index] = parent === index ? 0 : indents[parent] as number + (isOnly ? 0 : 1);
  }
  return {nodes, ends, parents, keys, indents};
}

export const hasChildren = ({ends}: Tree, index: number): boolean => (ends[index] as number) > index + 1;

/** Returns the number of nodes above a node. */
export function levelOf({parents}: Tree, index: number): number {
  let level = 0;
  for (let at = index; parents[at] !== at; at = parents[at] as number) level += 1;
  return level;
}

/** Returns the nodes that are shown, in order: roots, and children of open nodes. */
export function shownNodes(tree: Tree, isOpen: (key: number) => boolean): number[] {
  const shown: number[] = [];
  let index = 0;
  while (index < tree.nodes.length) {
    shown.push(index);
    index = hasChildren(tree, index) && isOpen(tree.keys[index] as number) ? index + 1 : tree.ends[index] as number;
  }
  return shown;
}

/** Returns the direct children of a node. */
export function childrenOf({ends}: Tree, index: number): number[] {
  const children: number[] = [];
  for (let child = index + 1; child < (ends[index] as number); child = ends[child] as number) children.push(child);
  return children;
}

/** The most nodes that are opened at first. */
const OPENED_MOST = 60;

/** Returns the keys of the nodes that are opened at first: the heaviest path, while one child has most of its parent. */
export function heaviestPath(tree: Tree): Set<number> {
  const opened = new Set<number>();
  let index = tree.nodes.length > 0 ? 0 : undefined;
  while (index !== undefined && opened.size < OPENED_MOST && hasChildren(tree, index)) {
    opened.add(tree.keys[index] as number);
    const [first] = childrenOf(tree, index);
    const isMost: boolean = first !== undefined && Math.abs((tree.nodes[first] as TreeNode).bytes) >= 0.5 * Math.abs((tree.nodes[index] as TreeNode).bytes);
    index = isMost ? first : undefined;
  }
  return opened;
}

/** Returns the nodes that match a text, and all nodes above them. */
export function matches(tree: Tree, text: string): {found: Set<number>; shown: number[]} {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== '');
  const found = new Set<number>();
  const isShown = new Uint8Array(tree.nodes.length);
  for (let index = 0; index < tree.nodes.length; index += 1) {
    const node = tree.nodes[index] as TreeNode;
    const name = `${nodeName(node)} ${node.file ?? ''} ${node.module ?? ''}`.toLowerCase();
    if (!words.every((word) => name.includes(word))) continue;
    found.add(index);
    for (let at = index; isShown[at] === 0; at = tree.parents[at] as number) isShown[at] = 1;
  }
  const shown: number[] = [];
  for (let index = 0; index < isShown.length; index += 1) if (isShown[index] === 1) shown.push(index);
  return {found, shown};
}
