// Answers as state of a component: asked when the question changes, cancelled when it is replaced.

import {useSignal, type Signal} from '@preact/signals';
import {useEffect} from 'preact/hooks';

import type {Parameter} from '../state/address';
import {ask, asAskError, type AskError} from './ask';

/** The state of a question. The last answer stays until the next one is there. */
export interface Asked<T> {
  value: T | undefined;
  notes: readonly string[];
  error: AskError | undefined;
  isWaiting: boolean;
  /** How far the job is, from 0 to 1; null if that is not known. */
  progress: number | null;
  /** True after 100 ms without an answer. */
  isSlow: boolean;
  /** Asks again. */
  again: () => void;
}

/** The time after which progress is shown, in milliseconds. */
const SLOW_AFTER = 100;

/** Counts up when all questions are to be asked again. */
let again: Signal<number> | undefined;
export function setAgain(signal: Signal<number>): void {
  again = signal;
}

/** Runs `work` when `key` changes; no key, no work. */
export function useWork<T>(
  key: string | undefined,
  work: (signal: AbortSignal, onProgress: (part: number | null) => void) => Promise<{value: T; notes: readonly string[]}>,
): Asked<T> {
  const repeat = useSignal(0);
  const state = useSignal<Omit<Asked<T>, 'again'>>({
    value: undefined, notes: [], error: undefined, isWaiting: key !== undefined, progress: null, isSlow: false,
  });
  const all = again?.value ?? 0;
  useEffect(() => {
    if (key === undefined) return undefined;
    const stop = new AbortController();
    state.value = {...state.peek(), isWaiting: true, progress: null, isSlow: false};
    const slow = setTimeout(() => (state.value = {...state.peek(), isSlow: true}), SLOW_AFTER);
    work(stop.signal, (progress) => {
      if (!stop.signal.aborted) state.value = {...state.peek(), progress};
    }).then(
      ({value, notes}) => ({value, notes, error: undefined}),
      (error: unknown) => ({value: undefined, notes: [], error: asAskError(error)}),
    ).then((next) => {
      clearTimeout(slow);
      if (!stop.signal.aborted) state.value = {...next, isWaiting: false, progress: null, isSlow: false};
    });
    return () => {
      clearTimeout(slow);
      stop.abort();
    };
  }, [key, repeat.value, all]);
  return {...state.value, again: () => (repeat.value += 1)};
}

/** Asks a verb. Without options nothing is asked. */
export function useAsk<T>(verb: string, options: readonly Parameter[] | undefined): Asked<T> {
  const key = options === undefined ? undefined : JSON.stringify([verb, options]);
  return useWork<T>(key, (signal, onProgress) => ask<T>(verb, options ?? [], signal, onProgress));
}
