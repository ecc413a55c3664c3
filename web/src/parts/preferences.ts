// The reader's own settings: units and colours. They are kept in the browser, if it keeps anything.

import {effect, signal} from '@preact/signals';

import {UNITS, type Units} from './format';

function kept(name: string): string | null {
  try {
    return localStorage.getItem(`heapledger-${name}`);
  } catch {
    return null;
  }
}

function keep(name: string, value: string): void {
  try {
    localStorage.setItem(`heapledger-${name}`, value);
  } catch {
    // Nothing can be kept here, so the setting lasts as long as the page.
  }
}

export const units = signal<Units>(UNITS.find((unit) => unit === kept('units')) ?? 'binary');
effect(() => keep('units', units.value));

/** Goes to the next of the units. */
export function nextUnits(): void {
  units.value = UNITS[(UNITS.indexOf(units.value) + 1) % UNITS.length] ?? 'binary';
}

const system = matchMedia('(prefers-color-scheme: dark)');
/** `auto` follows the system. */
export const theme = signal<'auto' | 'light' | 'dark'>((['light', 'dark'] as const).find((one) => one === kept('theme')) ?? 'auto');
effect(() => {
  keep('theme', theme.value);
  document.documentElement.dataset.theme = theme.value;
});

/** Counts up when colours change, for pictures that are drawn with them. */
export const colorsChanged = signal(0);
effect(() => {
  theme.value;
  colorsChanged.value = colorsChanged.peek() + 1;
});
for (const query of ['(prefers-color-scheme: dark)', '(forced-colors: active)', 'print']) {
  matchMedia(query).addEventListener('change', () => (colorsChanged.value += 1));
}

/** Switches between light and dark. If the system has the result, it is followed from then on. */
export function nextTheme(): void {
  const ofSystem = system.matches ? 'dark' : 'light';
  const next = (theme.value === 'auto' ? ofSystem : theme.value) === 'dark' ? 'light' : 'dark';
  theme.value = next === ofSystem ? 'auto' : next;
}

/** Returns a colour of the style sheet, for pictures. */
export const color = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
