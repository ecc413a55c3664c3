// Questions to the server. A question is a verb with its options; the answer is the verb's JSON. An
// answer that takes longer becomes a job, which is asked about until it is done.

import type {Parameter} from '../state/address';
import {isSaved, savedStore} from './saved';

/** An error as the command prints it. */
export class AskError extends Error {
  constructor(
    readonly code: string | undefined,
    message: string,
    readonly causes: readonly string[],
    readonly hint: string | undefined,
    /** True if no server answers. */
    readonly isGone = false,
  ) {
    super(message);
  }
}

/** Returns an error for anything that was thrown. */
export function asAskError(error: unknown): AskError {
  if (error instanceof AskError) return error;
  return new AskError(undefined, error instanceof Error ? error.message : String(error), [], undefined);
}

/** Told how far a job is: 0 to 1, or null if that is not known. */
export type OnProgress = (part: number | null) => void;

/** An answer, and the remarks that the command would print beside it. */
export interface Answer<T> {
  value: T;
  notes: readonly string[];
}

/** The first pause between two questions about a job, and the longest, in milliseconds. */
const POLL_FIRST = 60;
const POLL_MOST = 500;

async function get(address: string, init: RequestInit, signal: AbortSignal): Promise<Response> {
  if (isSaved) return (await savedStore()).answer(address);
  try {
    return await fetch(address, {...init, signal, credentials: 'same-origin', cache: 'no-store'});
  } catch (error) {
    if (signal.aborted) throw error;
    throw new AskError(
      undefined, 'the server is gone', ['no answer came from the command that serves this page'],
      'start it again: heapledger open FILE', true,
    );
  }
}

/** Reads the error of an answer. What is no error of ours becomes one that says so. */
async function errorOf(response: Response): Promise<AskError> {
  const text = await response.text().catch(() => '');
  try {
    const {error} = JSON.parse(text) as {error: {code?: string; message: string; causes?: string[]; hint?: string}};
    return new AskError(error.code, String(error.message), (error.causes ?? []).map(String), error.hint);
  } catch {
    return new AskError(undefined, `the server answered ${response.status}`, text === '' ? [] : [text.slice(0, 500)], undefined);
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason as Error);
      return;
    }
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, milliseconds);
    signal.addEventListener('abort', stop, {once: true});
  });
}

/** Returns the notes of an answer; unreadable ones are left out. */
export function notesOf(response: Response): string[] {
  try {
    const notes: unknown = JSON.parse(response.headers.get('heapledger-notes') ?? '[]');
    return Array.isArray(notes) ? notes.map(String) : [];
  } catch {
    return [];
  }
}

/** The jobs that this page waits for. */
const running = new Set<string>();

/** Cancels a job in the server. */
function cancel(job: string): void {
  running.delete(job);
  // The server may be gone, or the job done: both are fine.
  fetch(`api/job/${encodeURIComponent(job)}`, {method: 'DELETE', keepalive: true}).catch(() => undefined);
}

/** Cancels all jobs that the page waits for: nobody will ask for them when it is closed. */
export function cancelAll(): void {
  for (const job of [...running]) cancel(job);
}

/**
 * Fetches an answer, and waits for its job if it becomes one. If `signal` is aborted, the job is
 * cancelled in the server, too. The first request is not cut off: its answer names the job.
 */
export async function fetchAnswer(address: string, signal: AbortSignal, onProgress: OnProgress): Promise<Response> {
  let response = await get(address, {}, new AbortController().signal);
  let job: string | undefined;
  let wait = POLL_FIRST;
  try {
    while (response.status === 202) {
      const state = (await response.json()) as {job: string; progress: number | null};
      job = String(state.job);
      running.add(job);
      signal.throwIfAborted();
      onProgress(typeof state.progress === 'number' ? Math.min(1, Math.max(0, state.progress)) : null);
      await pause(wait, signal);
      wait = Math.min(wait * 1.5, POLL_MOST);
      response = await get(`api/job/${encodeURIComponent(job)}`, {}, signal);
    }
    signal.throwIfAborted();
  } catch (error) {
    if (signal.aborted && job !== undefined && response.status === 202) cancel(job);
    throw error;
  } finally {
    if (job !== undefined) running.delete(job);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** Returns the address of a question. */
export function questionAddress(verb: string, options: readonly Parameter[]): string {
  const query = new URLSearchParams(options.map(([name, value]) => [name, value])).toString();
  return `api/ask/${verb.split('/').map(encodeURIComponent).join('/')}?${query}`;
}

/** Asks a verb. */
export async function ask<T>(
  verb: string, options: readonly Parameter[], signal: AbortSignal, onProgress: OnProgress = () => undefined,
): Promise<Answer<T>> {
  const response = await fetchAnswer(questionAddress(verb, options), signal, onProgress);
  return {value: (await response.json()) as T, notes: notesOf(response)};
}
