// The place of the flame graph: asks for the call tree in columns, and keeps its state in the
// address. The graph itself is in `flame/`.

import {useMemo} from 'preact/hooks';

import {fetchAnswer, notesOf} from '../api/ask';
import {useWork} from '../api/hooks';
import {isSaved} from '../api/saved';
import {FLAME_KEYS, FlameView} from '../flame/view';
import {stateOf, stateParameters} from '../flame/state';
import {Answered} from '../parts/answer';
import {bytes, count} from '../parts/format';
import {useKeys} from '../parts/keys';
import {copy} from '../parts/message';
import {units} from '../parts/preferences';
import {settingsOf, valueOf, valuesOf, withValues, type Parameter} from '../state/address';
import {optionsFor, type Question} from '../state/options';
import {fileName} from '../state/session';
import {change, parameters, replaceSettings} from '../state/state';
import {Unused} from './unused';
import type {ViewProps} from './views';

/** The one script that may become a worker. Browsers with Trusted Types take no plain text for it. */
function makeWorker(): Worker {
  const factory = (globalThis as {trustedTypes?: {createPolicy: (name: string, rules: Policy) => Policy}}).trustedTypes;
  policy ??= factory?.createPolicy('heapledger-worker', {createScriptURL: () => WORKER});
  return new Worker((policy?.createScriptURL(WORKER) ?? WORKER) as string);
}
interface Policy { createScriptURL: (url: string) => unknown }
const WORKER = 'worker.js';
let policy: Policy | undefined;

/** Returns the questions for the tree, or for both trees if two files or two moments are compared. */
function sidesOf(all: readonly Parameter[]): {sides: [Parameter[], ...Parameter[][]]; unused: readonly string[]} {
  const files = valuesOf(all, 'file');
  const moments = valuesOf(all, 'at');
  const side = (at: 0 | 1): Question => {
    const moment = moments[at] ?? moments[0];
    return optionsFor('columns', withValues(all, {file: files[at] ?? files[0], at: moment}));
  };
  const [{options: before, unused}, {options: after}] = [side(0), side(1)];
  return {sides: JSON.stringify(before) === JSON.stringify(after) ? [after] : [before, after], unused};
}

/** Says which side is which. */
function Compared({before, after}: {before: readonly Parameter[]; after: readonly Parameter[]}) {
  const named = (side: readonly Parameter[]): string => {
    const at = valueOf(side, 'at') ?? 'peak';
    const when = valueOf(side, 'total') !== undefined ? 'all allocations' : at === 'peak' || at === 'end' ? `at the ${at}` : `at ${at}`;
    return `${fileName(valueOf(side, 'file') ?? '0')}, ${when}`;
  };
  const afterAlone = (): void => change({file: valueOf(after, 'file'), at: valueOf(after, 'at')});
  return (
    <p class="unused" role="note">
      Growth from <b>{named(before)}</b> to <b>{named(after)}</b>. <button type="button" class="link" onClick={afterAlone}>Show the latter alone</button>
    </p>
  );
}

export function FlamePlace({label}: ViewProps) {
  const {sides, unused} = sidesOf(parameters.value);
  const after = sides.at(-1) ?? sides[0];
  const asked = useWork<Uint8Array[]>(JSON.stringify(sides), async (signal, onProgress) => {
    const parts = sides.map((): number | null => 0);
    const trees = await Promise.all(sides.map(async (options, at) => {
      const query = new URLSearchParams(options.map(([name, value]) => [name, value])).toString();
      const response = await fetchAnswer(`api/columns?${query}`, signal, (part) => {
        parts[at] = part;
        onProgress(parts.includes(null) ? null : parts.reduce<number>((sum, one) => sum + (one ?? 0), 0) / parts.length);
      });
      parts[at] = 1;
      return {value: new Uint8Array(await response.arrayBuffer()), notes: notesOf(response)};
    }));
    return {value: trees.map(({value}) => value), notes: [...new Set(trees.flatMap(({notes}) => notes))]};
  });
  const settings = settingsOf(parameters.value);
  const text = new URLSearchParams(settings.map(([name, value]) => [name, value])).toString();
  const state = useMemo(() => stateOf(new URLSearchParams(text)), [text]);
  useKeys(FLAME_KEYS.map(([key, does]) => ({key: '', shown: key, does: `flame graph: ${does}`, run: () => undefined})));
  return (
    <div class="fill">
      <Unused verb="tree" unused={unused} />
      {sides.length > 1 ? <Compared before={sides[0]} after={after} /> : null}
      <Answered asked={asked} what="Reading the call tree">{(trees) => (
        <FlameView answer={trees.at(-1)!} before={trees.length > 1 ? trees[0] : undefined} name={`${label} of ${fileName(valueOf(after, 'file') ?? '0')}`}
          state={state} makeWorker={isSaved ? undefined : makeWorker} onState={(next) => replaceSettings(stateParameters(next))}
          onCopy={(copied, what, file) => void copy(copied, what, file)}
          format={(amount: number, metric: string) => /bytes|slop/.test(metric) ? bytes(amount, units.value) : count(amount)} />
      )}</Answered>
    </div>
  );
}
