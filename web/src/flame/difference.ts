// Two call trees as one, whose metrics are those of both sides.

import type {Columns} from './columns';

/** The beginnings of the names of metrics, for each side. */
export const BEFORE = 'before ';
export const AFTER = 'after ';

/**
 * Puts two trees together. The nodes of the second follow those of the first below the same root;
 * they are merged when a tree is made, as all frames of the same name are. Metrics that only one of
 * them has are left out.
 */
export function together(before: Columns, after: Columns): Columns {
  const shared = before.metrics.filter((metric) => after.metrics.includes(metric));
  const nodes = before.depth.length;
  const count = nodes + after.depth.length - 1;
  const joined = <T extends Uint32Array | Float64Array>(into: T, first: T, second: T): T => {
    into.set(first);
    into.set(second.subarray(1), nodes);
    return into;
  };
  const metrics: string[] = [];
  const total: number[] = [];
  const self: Float64Array[] = [];
  for (const metric of shared) {
    const [first, second] = [before.metrics.indexOf(metric), after.metrics.indexOf(metric)];
    const none = (columns: Columns): Float64Array => new Float64Array(columns.depth.length);
    metrics.push(BEFORE + metric, AFTER + metric);
    total.push(before.total[first]!, after.total[second]!);
    self.push(joined(new Float64Array(count), before.self[first]!, none(after)));
    const grown = joined(new Float64Array(count), none(before), after.self[second]!);
    grown[0] = after.self[second]![0]!;
    self.push(grown);
  }
  const moved = after.name.map((name) => name + before.names.length);
  return {
    unit: after.unit,
    metrics,
    total,
    cut: {nodes: before.cut.nodes + after.cut.nodes, bytes: before.cut.bytes + after.cut.bytes},
    names: [...before.names, ...after.names],
    depth: joined(new Uint32Array(count), before.depth, after.depth),
    name: joined(new Uint32Array(count), before.name, moved),
    self,
  };
}
