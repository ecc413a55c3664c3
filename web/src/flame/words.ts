// The sentences of the flame graph.

import type {Graph} from './graph';
import {changeText, percent, visible, type Format, type Labels} from './labels';
import {sourceText} from './names';
import type {Matches} from './search';
import type {FlameState} from './state';
import type {Shown} from './use-tree';

/** Returns why there is no picture, and what can be done. */
export function emptyText({head, metric}: Shown, {changes, sandwich}: FlameState): string {
  if (head.total.every((total) => total === 0)) {
    return 'No block is in this selection. Remove a part of it, or choose another moment.';
  }
  if (sandwich !== '') return `No stack of this selection has ${visible(sandwich)}. Remove it above, or choose another function.`;
  if (changes.length > 0) return 'The changes to the stacks leave nothing of this selection. Remove one of them above.';
  return `All ${head.metrics[metric]} of this selection are 0. Choose another metric.`;
}

/** Returns the share of the stacks that a search has found. */
export function foundText(found: Matches, metric: string, format: Format): string {
  if (found.count === 0) return 'no match';
  return `${percent(found.share, 1)}: ${format(found.amount, metric)} in ${found.count} ${found.count === 1 ? 'name' : 'names'}`;
}

/** Returns what a tooltip says: the name first. */
export function lines(of: Shown, graph: Graph, labels: Labels, node: number, format: Format): string[] {
  const {metric, sides, head: {metrics}} = of;
  const frame = graph.tree.names[graph.name(node)]!;
  const total = graph.total(node, metric);
  const self = graph.self(node, metric);
  const text = [labels.text(node)];
  const place = [frame.module, sourceText(frame)].filter((part) => part).map((part) => visible(part!));
  if (node !== 0 && place.length > 0) text.push(place.join(' · '));
  text.push(`${format(total, metrics[metric]!)} total, ${percent(total, graph.total(0, metric))} of all`);
  if (node !== 0) {
    const above = graph.total(graph.parent(node), metric);
    text.push(`${percent(total, above)} of its ${graph.isInverted ? 'callee' : 'caller'}`);
  }
  if (self !== 0) text.push(`${format(self, metrics[metric]!)} self`);
  if (sides !== undefined) text.push(`${changeText(graph, node, sides, format, metrics[metric]!)} growth`);
  return text;
}
