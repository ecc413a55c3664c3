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
    listen();
  } catch (error) {
    sessionError.value = asAskError(error);
  }
}

let events: EventSource | undefined;
function listen(): void {
  events?.close();
  events = new EventSource('api/events');
  events.addEventListener('memory', (event: MessageEvent<string>) => (memory.value = JSON.parse(event.data) as Memory));
  events.addEventListener('file-changed', (event: MessageEvent<string>) => {
    const {file, missing} = JSON.parse(event.data) as {file: number; missing?: boolean};
    changedFiles.value = new Map(changedFiles.value).set(file, missing === true ? 'is no longer there' : 'has changed since it was read');
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
