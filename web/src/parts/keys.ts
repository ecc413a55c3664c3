// Keys of the whole page. Views add theirs while they are shown; all are listed under `?`.

import {signal} from '@preact/signals';
import {useEffect} from 'preact/hooks';

export interface KeyAction {
  /** The key as the browser names it; empty for one that a part handles itself. */
  key: string;
  /** The keys as they are listed, if they are not `key`. */
  shown?: string;
  does: string;
  run: () => void;
}

/** Keys that parts handle themselves, for the list. */
export const KEYS_OF_LISTS: readonly (readonly [keys: string, does: string])[] = [
  ['↑ ↓ PageUp PageDown Home End', 'go through a list or a tree'],
  ['→ ←', 'open a node of a tree or close it; go to the node above'],
  ['Enter', 'show the details of a row, with its stack'],
  ['Esc', 'leave a filter, close details'],
];

export const keyActions = signal<readonly KeyAction[]>([]);

/** Adds keys while a component is shown. */
export function useKeys(actions: readonly KeyAction[], inputs: readonly unknown[] = []): void {
  useEffect(() => {
    keyActions.value = [...keyActions.peek(), ...actions];
    return () => (keyActions.value = keyActions.peek().filter((action) => !actions.includes(action)));
  }, inputs);
}

/** True if keys are text there. */
function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLInputElement && target.type !== 'checkbox' || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** Runs the action of a key, the one that was added last. */
export function onPageKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target)) {
    if (event.key === 'Escape') (event.target as HTMLElement).blur();
    return;
  }
  if (document.querySelector('dialog[open]') !== null) return;
  const action = [...keyActions.peek()].reverse().find(({key}) => key !== '' && key === event.key);
  if (action === undefined) return;
  event.preventDefault();
  action.run();
}
