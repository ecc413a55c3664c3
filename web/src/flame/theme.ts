// The page's theme, which a canvas does not follow by itself.

import {useEffect, useState} from 'preact/hooks';

import type {SystemColors, Theme} from './colors';

const DARK = '(prefers-color-scheme: dark)';
const FORCED = '(forced-colors: active)';

/** The theme, with the colours of a forced one. */
export interface PageTheme {
  theme: Theme;
  system?: SystemColors;
}

/** Returns the theme and follows its changes, also those of the page's own switch. */
export function useTheme(): PageTheme {
  const [theme, setTheme] = useState(currentTheme);
  useEffect(() => {
    const abort = new AbortController();
    const changed = (): void => setTheme(currentTheme());
    for (const query of [DARK, FORCED]) matchMedia(query).addEventListener('change', changed, {signal: abort.signal});
    const observer = new MutationObserver(changed);
    observer.observe(document.documentElement, {attributes: true, attributeFilter: ['data-theme']});
    return () => {
      abort.abort();
      observer.disconnect();
    };
  }, []);
  return theme;
}

function currentTheme(): PageTheme {
  if (matchMedia(FORCED).matches) return {theme: 'forced', system: systemColors()};
  const chosen = document.documentElement.dataset['theme'];
  const isDark = chosen === 'dark' || (chosen !== 'light' && matchMedia(DARK).matches);
  return {theme: isDark ? 'dark' : 'light'};
}

function systemColors(): SystemColors {
  const probe = document.createElement('span');
  document.body.append(probe);
  const color = (name: string): string => {
    probe.style.color = name;
    return getComputedStyle(probe).color;
  };
  const colors = {canvas: color('Canvas'), text: color('CanvasText'), highlight: color('Highlight')};
  probe.remove();
  return colors;
}
