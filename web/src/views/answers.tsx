// Any verb's answer as JSON: for files and verbs that no other view shows.

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {count} from '../parts/format';
import {copy, save} from '../parts/message';
import {valuesOf, type Parameter} from '../state/address';
import {commandText, isAskable, isComparison, optionsFor} from '../state/options';
import {currentFile, fileName, session} from '../state/session';
import {change, parameters, setting} from '../state/state';
import {Unused} from './unused';
import type {ViewProps} from './views';

/** The most characters that are shown; all of them are saved. */
const SHOWN_MOST = 300_000;

/** True if a comparison has what it compares. */
const hasTwoSides = (verb: string, options: readonly Parameter[]): boolean =>
  valuesOf(options, 'file').length > 1 || (verb === 'diff' && valuesOf(options, 'at').length > 1);

/** The choice of the file that the first one is compared with. */
function Other({verb}: {verb: string}) {
  const [first = String(currentFile.value?.id ?? 0), second = ''] = valuesOf(parameters.value, 'file');
  const others = (session.value?.files ?? []).filter(({id, verbs}) => String(id) !== first && verbs.includes(verb));
  if (others.length === 0) return null;
  return (
    <Choose label="with" value={second} options={[['', 'nothing'], ...others.map(({id, name}) => [String(id), name] as const)]}
      onChange={(value) => change({file: value === '' ? first : [first, value]})} />
  );
}

export function AnswersView({label}: ViewProps) {
  const file = currentFile.value;
  const verbs = (file?.verbs ?? []).filter(isAskable);
  const given = setting('verb');
  const verb = given !== undefined && isAskable(given) ? given : verbs[0];
  const {options, unused} = optionsFor(verb ?? '', parameters.value);
  const isReady = verb !== undefined && (!isComparison(verb) || hasTwoSides(verb, options));
  const asked = useAsk<unknown>(verb ?? '', isReady ? options : undefined);
  if (verb === undefined) return <Nothing why={`No verb reads ${file?.name ?? 'this file'}.`} />;
  const text = !isReady || asked.value === undefined ? '' : JSON.stringify(asked.value, null, 2);
  const name = `${verb.replaceAll('/', '-')}.json`;
  return (
    <div class="fill">
      <div class="tools">
        <Choose label="verb" value={verb} options={verbs.map((one) => [one, one.replace('/', ' ')])} onChange={(value) => change({verb: value})} />
        {isComparison(verb) ? <Other verb={verb} /> : null}
        <button type="button" onClick={() => void copy(`${text}\n`, 'the answer', name)}>Copy JSON</button>
        <button type="button" onClick={() => save(new Blob([text, '\n'], {type: 'application/json'}), name)}>Save JSON</button>
        <span class="soft">the same: <code>{commandText(verb, options, fileName)} --json</code></span>
      </div>
      <Unused verb={verb} unused={unused} />
      {isReady ? null : <Nothing why={`${verb.replace('/', ' ')} compares two files.`} hint={<>Choose the other one above, or open both: <code>heapledger open BEFORE AFTER</code>.</>} />}
      {!isReady ? null : <Answered asked={asked} what={`Asking ${verb}`}>{() => (
        <>
          {text.length > SHOWN_MOST ? <p class="unused" role="note">The first {count(SHOWN_MOST)} of {count(text.length)} characters are shown.</p> : null}
          <pre class="answer" tabIndex={0} role="region" aria-label={`${label}: ${verb}`}>{text.slice(0, SHOWN_MOST)}</pre>
        </>
      )}</Answered>}
    </div>
  );
}
