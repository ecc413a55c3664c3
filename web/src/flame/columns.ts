// Reads a call tree in columns, the answer to `api/columns`. All numbers are little-endian, as in
// every browser's typed arrays:
//
//     "HLCOLS01"    8 bytes
//     length        u32, of the JSON that follows
//     JSON          the unit, the metrics, the totals, the number of nodes, what was cut, the names
//     depth         u32 for each node, in preorder; the root is node 0 and the only one at depth 0
//     name          u32 for each node, an index of the names
//     self          f64 for each node, once for each metric
//
// The JSON and each array are followed by zeroes up to a multiple of eight bytes.

/** A frame of the program. Fields that are not known are absent. */
export interface FrameName {
  function?: string;
  module?: string;
  file?: string;
  line?: number;
  /** The type of the blocks, if the tree is by type. */
  type?: string;
}

/** A call tree as it was sent. */
export interface Columns {
  /** The unit of the first metric, such as `bytes`. */
  unit: string;
  /** The names of the metrics, at least one. */
  metrics: string[];
  /** The total of each metric, including what was cut. */
  total: number[];
  /** The small nodes that the sender left out. */
  cut: {nodes: number; bytes: number};
  names: FrameName[];
  /** The depth of each node, in preorder. */
  depth: Uint32Array;
  /** The index of each node's name in `names`. */
  name: Uint32Array;
  /** The node's own amount, without its children's: an array for each metric. */
  self: Float64Array[];
}

/** An answer that is not a call tree: the offset at which reading failed, and the reason. */
export class ColumnsError extends Error {
  constructor(readonly offset: number, readonly reason: string) {
    super(`reading the call tree failed at byte ${offset}: ${reason}`);
    this.name = 'ColumnsError';
  }
}

const MAGIC = 'HLCOLS01';
const METRICS_MAX = 64;
/** The bytes of a node without its metrics: its depth and its name. */
const NODE_BYTES = 8;

/**
 * Reads a call tree. The arrays are views of `bytes` if these begin at a multiple of eight in their
 * buffer, and copies otherwise. The work is proportional to the number of nodes.
 *
 * @throws {ColumnsError} if the bytes are not a whole call tree.
 */
export function readColumns(bytes: Uint8Array): Columns {
  const aligned = bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
  const buffer = aligned.buffer as ArrayBuffer;
  const length = aligned.byteLength;
  if (length < 12) throw new ColumnsError(length, 'the answer ends within its header');
  if (String.fromCharCode(...aligned.subarray(0, 8)) !== MAGIC) {
    throw new ColumnsError(0, `it does not begin with ${MAGIC}`);
  }
  const jsonLength = new DataView(buffer, aligned.byteOffset).getUint32(8, true);
  if (jsonLength > length - 12) throw new ColumnsError(8, 'the answer ends within its description');
  const head = description(aligned.subarray(12, 12 + jsonLength));

  let at = padded(12 + jsonLength);
  // The product is exact: both factors are below 2^53, and a larger one is refused here.
  const needed = head.nodes * (NODE_BYTES + 8 * head.metrics.length);
  if (needed > length - at) {
    throw new ColumnsError(length, `the answer ends before its ${head.nodes} nodes do`);
  }
  const array = (width: number): number => {
    const begin = at;
    at = padded(begin + head.nodes * width);
    if (begin + head.nodes * width > length) throw new ColumnsError(length, 'the answer ends within an array');
    return aligned.byteOffset + begin;
  };
  const depth = new Uint32Array(buffer, array(4), head.nodes);
  const name = new Uint32Array(buffer, array(4), head.nodes);
  const self = head.metrics.map(() => new Float64Array(buffer, array(8), head.nodes));
  check(head.names.length, depth, name, self, aligned.byteOffset);
  const {unit, metrics, total, cut, names} = head;
  return {unit, metrics, total, cut, names, depth, name, self};
}

interface Description {
  unit: string;
  metrics: string[];
  total: number[];
  nodes: number;
  cut: {nodes: number; bytes: number};
  names: FrameName[];
}

/** Reads the JSON of the header. */
function description(bytes: Uint8Array): Description {
  const wrong = (reason: string): never => {
    throw new ColumnsError(12, reason);
  };
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', {fatal: true}).decode(bytes));
  } catch (error) {
    return wrong(`the description is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (!isObject(json)) return wrong('the description is not an object');
  const {unit, metrics, total, nodes, cut, names} = json;
  if (typeof unit !== 'string') return wrong('`unit` is not a text');
  if (!Array.isArray(metrics) || !metrics.every((metric) => typeof metric === 'string')) {
    return wrong('`metrics` is not a list of texts');
  }
  if (metrics.length < 1 || metrics.length > METRICS_MAX) return wrong(`there are ${metrics.length} metrics`);
  if (!Array.isArray(total) || total.length !== metrics.length || !total.every(Number.isFinite)) {
    return wrong('`total` is not a number for each metric');
  }
  if (typeof nodes !== 'number' || !Number.isInteger(nodes) || nodes < 1 || nodes > 0x7fff_ffff) {
    return wrong('`nodes` is not a number of nodes; a tree has at least its root');
  }
  if (!Array.isArray(names)) return wrong('`names` is not a list');
  const cutOf = (field: 'nodes' | 'bytes'): number => {
    const value = isObject(cut) ? cut[field] : 0;
    return typeof value === 'number' && Number.isFinite(value) ? value : 0;
  };
  return {
    unit,
    metrics,
    total,
    nodes,
    cut: {nodes: cutOf('nodes'), bytes: cutOf('bytes')},
    names: names.map((name, index) => frameName(name) ?? wrong(`name ${index} is not an object of texts`)),
  };
}

/** Returns a checked copy with the known fields only, or `undefined` if one has the wrong type. */
function frameName(json: unknown): FrameName | undefined {
  if (!isObject(json)) return undefined;
  const name: FrameName = {};
  for (const field of ['function', 'module', 'file', 'type'] as const) {
    const value = json[field];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'string') return undefined;
    name[field] = value;
  }
  const {line} = json;
  if (line !== undefined && line !== null) {
    if (typeof line !== 'number' || !Number.isSafeInteger(line)) return undefined;
    name.line = line;
  }
  return name;
}

/** Checks what all later code relies on: one root, no step down of more than one, known names. */
function check(names: number, depth: Uint32Array, name: Uint32Array, self: Float64Array[], base: number): void {
  const fail = (array: Uint32Array | Float64Array, node: number, reason: string): never => {
    const offset = array.byteOffset - base + node * array.BYTES_PER_ELEMENT;
    throw new ColumnsError(offset, `node ${node} ${reason}`);
  };
  for (let node = 0; node < depth.length; node++) {
    const here = depth[node]!;
    if (node === 0 ? here !== 0 : here === 0 || here > depth[node - 1]! + 1) {
      fail(depth, node, `has the impossible depth ${here}`);
    }
    if (name[node]! >= names) fail(name, node, `has name ${name[node]} of ${names}`);
  }
  for (const amounts of self) {
    const node = amounts.findIndex((amount) => !Number.isFinite(amount));
    if (node >= 0) fail(amounts, node, 'has an amount that is not a finite number');
  }
}

function padded(offset: number): number {
  return Math.ceil(offset / 8) * 8;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
