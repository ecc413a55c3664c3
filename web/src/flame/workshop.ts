// Makes trees of columns: here, or in a worker if there are many nodes.

import {readColumns, type Columns, type FrameName} from './columns';
import {together} from './difference';
import type {MergeBy} from './names';
import {calleesOf, functionsNamed, transformed, type Transform} from './transforms';
import {mergedByModule, treeOf, type Tree, type TreeArrays, type WidthOf} from './tree';

/** The description of columns, without the tree itself. */
export interface Head {
  unit: string;
  metrics: string[];
  total: number[];
  cut: {nodes: number; bytes: number};
  names: FrameName[];
  /** The number of nodes. */
  nodes: number;
}

/** A tree that is wanted. */
export interface Wanted {
  by: MergeBy;
  transforms: readonly Transform[];
  width: WidthOf;
  /** The function that is the root, if only its callees are wanted. */
  calleesOf?: string;
}

/** The messages to the worker. */
export type Order =
  | {id: number; kind: 'load'; answer: Uint8Array; before: Uint8Array | undefined}
  | {id: number; kind: 'make'; wanted: Wanted};

/** The messages from the worker. */
export type Delivery = {id: number} & ({head: Head} | {arrays: TreeArrays} | {error: string});

/** The work itself, wherever it is done. Keeps the columns and the last merged tree. */
export class Bench {
  private columns: Columns | undefined;
  private merged: {by: 'function' | 'line'; width: string; tree: Tree} | undefined;

  /** Reads an answer of the server; with `before`, two that are compared. */
  load(answer: Uint8Array, before?: Uint8Array): Head {
    const read = readColumns(answer);
    this.columns = before === undefined ? read : together(readColumns(before), read);
    this.merged = undefined;
    const {unit, metrics, total, cut, names, depth} = this.columns;
    return {unit, metrics, total, cut, names, nodes: depth.length};
  }

  /** Makes a tree. Changes are made to functions, before these are merged by their modules. */
  make({by, transforms, width, calleesOf: root}: Wanted): Tree {
    if (this.columns === undefined) throw new Error('no call tree was loaded');
    const first = by === 'module' ? 'function' : by;
    const key = String(width);
    if (this.merged?.by !== first || this.merged.width !== key) {
      this.merged = {by: first, width: key, tree: treeOf(this.columns, first, width)};
    }
    let tree = transformed(this.merged.tree, transforms, width);
    if (root !== undefined) tree = calleesOf(tree, functionsNamed(tree, root), width);
    return by === 'module' ? mergedByModule(tree, width) : tree;
  }

  /** True if this tree is kept for the next order. */
  keeps(tree: Tree): boolean {
    return this.merged?.tree === tree;
  }
}

/** Answers the orders of a page. The worker's whole program. */
export function serve(scope: {
  onmessage: ((event: MessageEvent<Order>) => void) | null;
  postMessage(message: Delivery, transfer: Transferable[]): void;
}): void {
  const bench = new Bench();
  scope.onmessage = ({data: order}) => {
    const {id} = order;
    try {
      if (order.kind === 'load') {
        scope.postMessage({id, head: bench.load(order.answer, order.before)}, []);
        return;
      }
      const tree = bench.make(order.wanted);
      const {names: _, ...arrays} = tree;
      // The arrays of a tree that is kept are copied and not given away.
      const {name, depth, parent, end, self, total, width, own} = arrays;
      const given = [name, depth, parent, end, ...self, ...total, width, own].map((array) => array.buffer as ArrayBuffer);
      scope.postMessage({id, arrays}, bench.keeps(tree) ? [] : given);
    } catch (error) {
      scope.postMessage({id, error: error instanceof Error ? error.message : String(error)}, []);
    }
  };
}

/** The worker could not be started, or ended. */
class NoWorker extends Error {
  constructor(reason: string) {
    super(`the worker failed: ${reason}`);
  }
}

/** Answers of fewer bytes are worked on at once: that is done before a worker has begun. */
const WORKER_FROM = 1 << 20;

/** Makes trees for a page. A newer order takes the place of one for the same use that waits. */
export class Workshop {
  private readonly here = new Bench();
  private worker: Worker | undefined;
  private isRemote = false;
  private names: FrameName[] = [];
  private next = 0;
  private readonly waiting = new Map<number, {resolve: (delivery: Delivery) => void; reject: (error: Error) => void}>();
  private readonly latest = new Map<string, number>();
  private readonly busy = new Map<string, Promise<unknown>>();

  /** `makeWorker` starts the worker when it is needed first. Without it all work is done here. */
  constructor(private makeWorker?: () => Worker) {}

  /** Reads an answer of the server, which must not be changed afterwards. */
  async load(answer: Uint8Array, before?: Uint8Array): Promise<Head> {
    this.isRemote = this.makeWorker !== undefined && answer.length + (before?.length ?? 0) >= WORKER_FROM;
    if (!this.isRemote) {
      const head = this.here.load(answer, before);
      this.names = head.names;
      return head;
    }
    try {
      const delivery = await this.ask({id: this.next++, kind: 'load', answer, before});
      if (!('head' in delivery)) throw new Error('the worker gave another answer than was asked for');
      this.names = delivery.head.names;
      return delivery.head;
    } catch (error) {
      if (!(error instanceof NoWorker)) throw error;
      // Without a worker the page stands still while it works, which is better than no picture.
      this.makeWorker = undefined;
      return this.load(answer, before);
    }
  }

  /** Makes a tree, or returns `undefined` if another for the same use was wanted meanwhile. */
  async make(use: string, wanted: Wanted): Promise<Tree | undefined> {
    const turn = (this.latest.get(use) ?? 0) + 1;
    this.latest.set(use, turn);
    if (!this.isRemote) return this.here.make(wanted);
    // The worker does one thing after the other: what is outdated before its turn is not begun.
    await this.busy.get(use);
    if (this.latest.get(use) !== turn) return undefined;
    const {names} = this;
    const asked = this.ask({id: this.next++, kind: 'make', wanted});
    this.busy.set(use, asked.catch(() => undefined));
    const delivery = await asked;
    if (this.latest.get(use) !== turn) return undefined;
    if (!('arrays' in delivery)) throw new Error('the worker gave another answer than was asked for');
    return {...delivery.arrays, names};
  }

  /** Ends the worker. */
  close(): void {
    this.worker?.terminate();
    this.worker = undefined;
    this.fail(new Error('the view was closed'));
  }

  private ask(order: Order): Promise<Delivery> {
    try {
      this.worker ??= this.started();
    } catch (error) {
      return Promise.reject(new NoWorker(error instanceof Error ? error.message : String(error)));
    }
    const {worker} = this;
    return new Promise((resolve, reject) => {
      this.waiting.set(order.id, {resolve, reject});
      worker.postMessage(order);
    });
  }

  private started(): Worker {
    const worker = this.makeWorker!();
    worker.onmessage = ({data}: MessageEvent<Delivery>) => {
      const waiting = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if ('error' in data) waiting?.reject(new Error(data.error));
      else waiting?.resolve(data);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      this.worker = undefined;
      this.fail(new NoWorker(event.message || 'it could not be started'));
    };
    return worker;
  }

  private fail(error: Error): void {
    for (const {reject} of this.waiting.values()) reject(error);
    this.waiting.clear();
  }
}
