// The place where the page is, as signals. The address is the only copy: back and forward work, and
// a link shows the same to a colleague who has the same file.

import {computed, signal} from '@preact/signals';

import {
  isSelection, narrowed, parsePlace, placeText, settingsOf, valueOf, valuesOf, withValues, without,
  type Parameter, type Place,
} from './address';

const FIRST_VIEW = 'summary';

const read = (): Place => parsePlace(globalThis.location.hash, FIRST_VIEW);

/** The view and its parameters. */
export const place = signal<Place>(read());
export const view = computed(() => place.value.view);
export const parameters = computed(() => place.value.parameters);
/** The number of the file that is looked at. */
export const file = computed(() => valuesOf(parameters.value, 'file')[0] ?? '0');

globalThis.addEventListener('hashchange', () => (place.value = read()));

/** The settings that each view had when it was left. */
const left = new Map<string, readonly Parameter[]>();

function enter(next: Place, isSmall: boolean): void {
  if (placeText(next) === placeText(place.value)) return;
  left.set(next.view, settingsOf(next.parameters));
  // Typing in a filter is no step that `back` should take back letter by letter.
  globalThis.history[isSmall ? 'replaceState' : 'pushState'](null, '', placeText(next));
  place.value = next;
}

/** Goes to another view with the same selection, and with the settings that it had. */
export function goTo(to: string, settings?: readonly Parameter[]): void {
  const selection = parameters.value.filter(([name]) => isSelection(name));
  enter({view: to, parameters: [...selection, ...(settings ?? left.get(to) ?? [])]}, false);
}

/** Goes to a place, for links that say all. */
export const goToPlace = (to: Place): void => enter(to, false);

/** Sets parameters of this view. A small change does not become a step of `back`. */
export function change(values: Readonly<Record<string, string | readonly string[] | undefined>>, isSmall = false): void {
  enter({view: view.value, parameters: withValues(parameters.value, values)}, isSmall);
}

/** Replaces all settings of this view; the selection stays. */
export function replaceSettings(settings: readonly Parameter[]): void {
  enter({view: view.value, parameters: [...parameters.value.filter(([name]) => isSelection(name)), ...settings]}, false);
}

/** Adds a condition to the selection, and stays in the view or goes to another. */
export function narrow(name: string, value: string, to = view.value): void {
  const all = narrowed(parameters.value, name, value);
  enter({view: to, parameters: to === view.value ? all : [...all.filter(([one]) => isSelection(one)), ...(left.get(to) ?? [])]}, false);
}

/** Removes conditions. */
export function widen(conditions: readonly Parameter[]): void {
  enter({view: view.value, parameters: conditions.reduce<readonly Parameter[]>(without, parameters.value)}, false);
}

/** Removes all conditions but the file. */
export function widenAll(): void {
  enter({view: view.value, parameters: parameters.value.filter(([name]) => name === 'file' || !isSelection(name))}, false);
}

export const setting = (name: string): string | undefined => valueOf(parameters.value, name);

/** Returns the address of this place without the secret of the server, to give to a colleague. */
export const linkText = (): string => placeText(place.value);
