// Any verb's answer as JSON: for files and verbs that no other view shows.


import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {count} from '../parts/format';
import {copy, save} from '../parts/message';
import {commandText, optionsFor} from '../state/options';
import {currentFile} from '../state/session';
import {change, parameters, setting} from '../state/state';
import {Unused} from './unused';
import type {ViewProps} from './views';

/** The most characters that are shown; all of them are saved. */
const SHOWN_MOST = 300_000;

export function AnswersView({label}: ViewProps) {
  const file = currentFile.value;
  const verbs = file?.verbs ?? [];
  const verb = setting('verb') ?? verbs[0];
  const {options, unused} = optionsFor(verb ?? '', parameters.value);
  const asked = useAsk<unknown>(verb ?? '', verb === undefined ? undefined : options);
  if (verb === undefined) return <Nothing why={`No verb reads ${file?.name ?? 'this file'}.`} />;
  const text = asked.value === undefined ? '' : JSON.stringify(asked.value, null, 2);
  const name = `${verb.replaceAll('/', '-')}.json`;
  return (
    <div class="fill">
      <div class="tools">
        <Choose label="verb" value={verb} options={verbs.map((one) => [one, one.replace('/', ' ')])} onChange={(value) => change({verb: value})} />
        <button type="button" onClick={() => void copy(`${text}\n`, 'the answer', name)}>Copy JSON</button>
        <button type="button" onClick={() => save(new Blob([text, '\n'], {type: 'application/json'}), name)}>Save JSON</button>
        <span class="soft">the same: <code>{commandText(verb, options, () => file?.name ?? 'FILE')} --json</code></span>
      </div>
      <Unused verb={verb} unused={unused} />
      <Answered asked={asked} what={`Asking ${verb}`}>{() => (
        <>
          {text.length > SHOWN_MOST ? <p class="unused" role="note">The first {count(SHOWN_MOST)} of {count(text.length)} characters are shown.</p> : null}
          <pre class="answer" tabIndex={0} role="region" aria-label={`${label}: ${verb}`}>{text.slice(0, SHOWN_MOST)}</pre>
        </>
      )}</Answered>
    </div>
  );
}
