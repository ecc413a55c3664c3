// All that is known of the chosen frame, and what can be done with it.

import type {Sides} from './colors';
import type {Graph} from './graph';
import {percent, selfTitle, signedAmount, stackText, visible, type Copy, type Format, type Labels} from './labels';
import {functionText, sourceText} from './names';
import type {Transform} from './transforms';

export interface DetailsProps {
  graph: Graph;
  labels: Labels;
  node: number;
  metrics: readonly string[];
  metric: number;
  sides: Sides | undefined;
  format: Format;
  onChange: (change: Transform) => void;
  onSandwich: (name: string) => void;
  onCopy: Copy;
}

export function Details({graph, labels, node, metrics, metric, sides, format, onChange, onSandwich, onCopy}: DetailsProps) {
  const name = graph.tree.names[graph.name(node)]!;
  const source = sourceText(name);
  const isModule = graph.tree.by === 'module';
  const text = functionText(name);
  const total = graph.total(node, metric);
  const {module} = name;
  return (
    <section class="flame-details" aria-label="Chosen frame">
      <h2>{labels.text(node)}</h2>
      {node !== 0 && (
        <p class="flame-where">
          {!isModule && module && <span>{visible(module)}</span>}
          {source && <span>{visible(source)}</span>}
          {name.type && <span>{visible(name.type)}</span>}
        </p>
      )}
      <table>
        <thead>
          <tr>
            <td />
            <th scope="col">Total</th>
            <th scope="col">{selfTitle(graph)}</th>
          </tr>
        </thead>
        <tbody>
          {metrics.map((of, index) => (
            <tr class={index === metric ? 'flame-used' : ''}>
              <th scope="row">{of}</th>
              <td>{format(graph.total(node, index), of)}</td>
              <td>{format(graph.self(node, index), of)}</td>
            </tr>
          ))}
          {sides !== undefined && <Growth graph={graph} node={node} sides={sides} metrics={metrics} format={format} />}
          <tr>
            <th scope="row">share of all</th>
            <td>{percent(total, graph.total(0, metric))}</td>
            <td>{percent(graph.self(node, metric), graph.total(0, metric))}</td>
          </tr>
          {node !== 0 && (
            <tr>
              <th scope="row">share of {graph.isInverted ? 'callee' : 'caller'}</th>
              <td>{percent(total, graph.total(graph.parent(node), metric))}</td>
              <td />
            </tr>
          )}
        </tbody>
      </table>
      {node !== 0 && (
        <div class="flame-actions">
          {!isModule && (
            <>
              <button type="button" onClick={() => onSandwich(text)} title="Callers and callees (s)">
                Callers and callees
              </button>
              <button type="button" onClick={() => onChange({kind: 'focus', function: text})} title="Only stacks with it (f)">
                Focus
              </button>
              <button type="button" onClick={() => onChange({kind: 'drop', function: text})} title="Only stacks without it (d)">
                Drop
              </button>
              <button type="button" onClick={() => onChange({kind: 'merge', function: text})} title="Leave its frames out (m)">
                Merge
              </button>
            </>
          )}
          <button type="button" onClick={() => onCopy(stackText(graph, node), 'the stack', 'stack.txt')}>
            Copy stack
          </button>
          {module && (
            <button type="button" onClick={() => onChange({kind: 'hide', module})} title="Leave the frames of its module out (h)">
              Hide {visible(module)}
            </button>
          )}
        </div>
      )}
    </section>
  );
}

interface GrowthProps {
  graph: Graph;
  node: number;
  sides: Sides;
  metrics: readonly string[];
  format: Format;
}

function Growth({graph, node, sides, metrics, format}: GrowthProps) {
  const grown = (amount: (metric: number) => number): string =>
    signedAmount(amount(sides.after) - amount(sides.before), format, metrics[sides.after]!);
  return (
    <tr>
      <th scope="row">growth</th>
      <td>{grown((metric) => graph.total(node, metric))}</td>
      <td>{grown((metric) => graph.self(node, metric))}</td>
    </tr>
  );
}
