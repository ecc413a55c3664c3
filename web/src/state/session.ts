// The session as state: files, and what the server says while the page is open.

import {computed, signal} from '@preact/signals';

import {asAskError, fetchAnswer, type AskError} from '../api/ask';
import {isSaved, savedStore} from '../api/saved';
import type {Memory, Session, SessionFile} from '../api/session';
import {file} from './state';

export const session = signal<Session | undefined>(undefined);
export const sessionError = signal<AskError | undefined>(undefined);
export const memory = signal<Memory | undefined>(undefined);
/** What a saved page says about itself; empty if a server answers. */
export const aboutSaved = signal<readonly string[]>([]);
/** Files that have changed or vanished since they were read. */
export const changedFiles = signal<ReadonlyMap<number, string>>(new Map());
export const isGone = signal(false);
/** Counts up when all questions are to be asked again. */
export const askAgain = signal(0);

export const currentFile = computed<SessionFile | undefined>(() =>
  session.value?.files.find(({id}) => String(id) === file.value) ?? session.value?.files[0]);

export const fileName = (id: string): string => session.value?.files.find((one) => String(one.id) === id)?.name ?? `file ${id}`;

/** Fetches the list of files, and listens to what happens to them. */
export async function openSession(): Promise<void> {
  try {
    const answer = await fetchAnswer('api/session', new AbortController().signal, () => undefined);
    session.value = (await answer.json()) as Session;
    sessionError.value = undefined;
    if (isSaved) {
      aboutSaved.value = (await savedStore()).about();
      return;
    }
    memory.value = session.value.memory;
    if (!document.hidden) listen();
  } catch (error) {
    sessionError.value = asAskError(error);
  }
}

/**
 * Stops listening while the page is not seen, and looks at the files again when it is. Browsers open
 * six connections to a server for all pages together, and each one that listens keeps one.
 */
export async function onVisibility(isHidden: boolean): Promise<void> {
  if (isSaved) return;
  if (isHidden) {
    events?.close();
    return;
  }
  // A page that is not open yet listens as soon as it is.
  const before = session.value;
  if (before === undefined) return;
  listen();
  try {
    const answer = await fetchAnswer('api/session', new AbortController().signal, () => undefined);
    const {files, memory: now} = (await answer.json()) as Session;
    memory.value = now;
    for (const {id, bytes} of files) {
      if (bytes !== before.files.find((one) => one.id === id)?.bytes) fileChanged(id, bytes === 0);
    }
    session.value = {...before, files};
  } catch (error) {
    if (asAskError(error).isGone) isGone.value = true;
  }
}

function fileChanged(id: number, isMissing: boolean): void {
  changedFiles.value = new Map(changedFiles.value).set(id, isMissing ? 'is no longer there' : 'has changed since it was read');
}

let events: EventSource | undefined;
function listen(): void {
  events?.close();
  events = new EventSource('api/events');
  events.addEventListener('memory', (event: MessageEvent<string>) => (memory.value = JSON.parse(event.data) as Memory));
  events.addEventListener('file-changed', (event: MessageEvent<string>) => {
    const {file, missing} = JSON.parse(event.data) as {file: number; missing?: boolean};
    fileChanged(file, missing === true);
  });
  events.addEventListener('open', () => {
    if (isGone.value) askAgain.value += 1;
    isGone.value = false;
  });
  // The browser tries again by itself, unless the server refused.
  events.addEventListener('error', () => (isGone.value = true));
}

export function forgetChange(id: number): void {
  const left = new Map(changedFiles.value);
  left.delete(id);
  changedFiles.value = left;
  askAgain.value += 1;
}
