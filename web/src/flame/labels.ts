// The texts on boxes.

import {csvCell} from '../parts/csv';
import type {Sides} from './colors';
import type {Graph} from './graph';
import {frameText, sourceText} from './names';
import {NONE} from './tree';

/** Writes an amount for people, with its unit: `12.3 MiB`. */
export type Format = (amount: number, metric: string) => string;

/** Copies a text: `what` names it for people, `file` is its name if it has to be saved instead. */
export type Copy = (text: string, what: string, file: string) => void;

/** Fewer characters than these say nothing. */
const CHARACTERS_MIN = 3;
/** Characters that change the order of others, or are not to be seen. */
const CONTROLS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** The texts of a graph's names, each made once. */
export class Labels {
  private readonly texts: (string | undefined)[] = [];

  /** `root` is the text of the root, which stands for all unless its frame has a function. */
  constructor(private readonly graph: Graph, private readonly root?: string) {}

  /** Returns the text of a node. */
  text(node: number): string {
    if (node === NONE) return '…';
    if (node === 0 && this.root !== undefined) return visible(this.root);
    if (node === 0 && !this.graph.tree.names[this.graph.name(0)]!.function) return 'all';
    const name = this.graph.name(node);
    return (this.texts[name] ??= visible(frameText(this.graph.tree.names[name]!, this.graph.tree.by)));
  }
}

/** Returns the text with a sign for each character that is unseen or that turns others over. */
export function visible(text: string): string {
  return text.replace(CONTROLS, '\ufffd');
}

/** Returns the text if it has at most so many characters, its beginning if not, or nothing. */
export function fitted(text: string, characters: number): string {
  if (text.length <= characters) return text;
  return characters < CHARACTERS_MIN ? '' : `${text.slice(0, characters - 1)}…`;
}

/** Returns the title of own amounts: in a graph turned over, of stacks that begin there. */
export function selfTitle(graph: Graph): string {
  return graph.isInverted ? 'Outermost' : 'Self';
}

/** Returns how much a node has grown, with its sign: `+1.2 MiB`. */
export function changeText(graph: Graph, node: number, sides: Sides, format: Format, metric: string): string {
  return signedAmount(graph.total(node, sides.after) - graph.total(node, sides.before), format, metric);
}

/** Returns a change with its sign, which zero has, too. */
export function signedAmount(change: number, format: Format, metric: string): string {
  return `${change > 0 ? '+' : change < 0 ? '−' : '±'}${format(Math.abs(change), metric)}`;
}

/** Returns the frames between the root and a node, the outermost first, a line for each. */
export function stackText(graph: Graph, node: number): string {
  const lines: string[] = [];
  for (let here = node; here !== 0; here = graph.parent(here)) {
    const frame = graph.tree.names[graph.name(here)]!;
    const place = [frame.module, sourceText(frame)].filter((part) => part).join(' ');
    lines.push(`${frameText(frame, graph.tree.by)}${place === '' ? '' : ` (${place})`}`);
  }
  if (!graph.isInverted) lines.reverse();
  return `${lines.map(visible).join('\n')}\n`;
}

/** The forms in which rows can be copied. */
export type RowsAs = 'text' | 'CSV' | 'JSON';

/** Returns rows with their depths, names and exact amounts of all metrics. */
export function rowsText(graph: Graph, labels: Labels, nodes: readonly number[], metrics: readonly string[], as: RowsAs): string {
  const amounts = (node: number): [string, number][] =>
    metrics.flatMap((metric, index): [string, number][] => [
      [metric, graph.total(node, index)],
      [`self ${metric}`, graph.self(node, index)],
    ]);
  const columns = ['depth', 'name', ...amounts(0).map(([title]) => title)];
  const rows = nodes.map((node) => [graph.depth(node), labels.text(node), ...amounts(node).map(([, amount]) => amount)]);
  if (as === 'JSON') {
    const objects = rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at]])));
    return `${JSON.stringify(objects, null, 1)}\n`;
  }
  if (as === 'CSV') {
    return [columns, ...rows].map((row) => `${row.map(csvCell).join(',')}\r\n`).join('');
  }
  return nodes
    .map((node) => {
      const texts = metrics.map((_, index) => String(graph.total(node, index)).padStart(14));
      return `${texts.join(' ')}  ${'  '.repeat(Math.min(graph.depth(node), 100))}${labels.text(node)}\n`;
    })
    .join('');
}

/** Returns the sign of a change and as much of the text as fits after it, or nothing. */
export function signed(sign: -1 | 0 | 1, text: string, characters: number): string {
  if (sign === 0) return fitted(text, characters);
  const rest = fitted(text, characters - 2);
  return rest === '' ? '' : `${sign > 0 ? '+' : '−'} ${rest}`;
}

/** Returns a part of a whole as percent, such as `12.3 %`. */
export function percent(part: number, whole: number): string {
  if (whole === 0) return '0 %';
  const value = (100 * part) / whole;
  const digits = Math.abs(value) >= 10 || value === 0 ? 1 : Math.abs(value) >= 0.1 ? 2 : 3;
  return `${value.toFixed(digits)} %`;
}
