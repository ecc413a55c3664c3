// The frame around an answer: progress while it is waited for, the error if there is none, remarks.

import type {ComponentChildren} from 'preact';

import type {Asked} from '../api/hooks';
import type {AskError} from '../api/ask';
import {isSaved} from '../api/saved';

/** The bar of a job. Without a known part it moves to and fro. */
export function Progress({part, what}: {part: number | null; what: string}) {
  return (
    <div class="progress">
      <progress aria-label={what} max={1} {...(part === null ? {} : {value: part})} />
      <span>{what}{part === null ? ' …' : ` … ${Math.round(part * 100)} %`}</span>
    </div>
  );
}

/** An error as the command prints it. */
export function Failure({error, again}: {error: AskError; again?: () => void}) {
  return (
    <div class="failure" role="alert">
      <p><strong>error{error.code === undefined ? '' : `[${error.code}]`}:</strong> {error.message}</p>
      {error.causes.map((cause) => <p class="cause">because: {cause}</p>)}
      {error.hint === undefined ? null : <p class="hint"><strong>hint:</strong> <code>{error.hint}</code></p>}
      {again === undefined ? null : <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

export function Notes({notes}: {notes: readonly string[]}) {
  if (notes.length === 0) return null;
  return (
    <details class="notes">
      <summary>{notes.length === 1 ? '1 remark' : `${notes.length} remarks`}</summary>
      {notes.map((note) => <p>{note}</p>)}
    </details>
  );
}

/** Shows a question's answer by `children`, and all that happens before there is one. */
export function Answered<T>({asked, what, children}: {asked: Asked<T>; what: string; children: (value: T) => ComponentChildren}) {
  const {value, error, isWaiting, isSlow, progress, notes, again} = asked;
  return (
    <>
      <div class="over" data-waiting={isWaiting ? '' : undefined}>{isSlow ? <Progress part={progress} what={what} /> : null}</div>
      {error === undefined ? null : <Failure error={error} {...(isSaved ? {} : {again})} />}
      <Notes notes={notes} />
      {value === undefined ? null : children(value)}
    </>
  );
}

/** The place of data that are not there: why, and what to do. */
export function Nothing({why, hint}: {why: string; hint?: ComponentChildren}) {
  return <div class="nothing"><p>{why}</p>{hint === undefined ? null : <p class="soft">{hint}</p>}</div>;
}
