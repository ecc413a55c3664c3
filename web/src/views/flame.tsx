// The place of the flame graph: asks for the call tree in columns, and keeps its state in the
// address. The graph itself is in `flame/`.

import {useMemo} from 'preact/hooks';

import {fetchAnswer} from '../api/ask';
import {useWork} from '../api/hooks';
import {isSaved} from '../api/saved';
import {FLAME_KEYS, FlameView} from '../flame/view';
import {stateOf, stateParameters} from '../flame/state';
import {Answered} from '../parts/answer';
import {bytes, count} from '../parts/format';
import {useKeys} from '../parts/keys';
import {units} from '../parts/preferences';
import {settingsOf} from '../state/address';
import {optionsFor} from '../state/options';
import {currentFile} from '../state/session';
import {parameters, replaceSettings} from '../state/state';
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

export function FlamePlace({label}: ViewProps) {
  const {options, unused} = optionsFor('columns', parameters.value);
  const query = new URLSearchParams(options.map(([name, value]) => [name, value])).toString();
  const asked = useWork<Uint8Array>(query, async (signal, onProgress) => {
    const response = await fetchAnswer(`api/columns?${query}`, signal, onProgress);
    return {value: new Uint8Array(await response.arrayBuffer()), notes: []};
  });
  const settings = settingsOf(parameters.value);
  const text = new URLSearchParams(settings.map(([name, value]) => [name, value])).toString();
  const state = useMemo(() => stateOf(new URLSearchParams(text)), [text]);
  useKeys(FLAME_KEYS.map(([key, does]) => ({key: '', shown: key, does: `flame graph: ${does}`, run: () => undefined})));
  return (
    <div class="fill flame-room">
      <Unused verb="columns" unused={unused} />
      <Answered asked={asked} what="Reading the call tree">{(answer) => (
        <FlameView answer={answer} before={undefined} name={`${label} of ${currentFile.value?.name ?? ''}`} state={state} makeWorker={isSaved ? undefined : makeWorker}
          onState={(next) => replaceSettings(stateParameters(next))}
          format={(amount: number, metric: string) => /bytes|slop/.test(metric) ? bytes(amount, units.value) : count(amount)} />
      )}</Answered>
    </div>
  );
}
