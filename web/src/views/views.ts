// The list of views.

import type {ComponentType} from 'preact';

export interface ViewProps {
  /** Names the view's own parts for screen readers. */
  label: string;
}

export interface ViewOf {
  id: string;
  label: string;
  /** The verb that must be possible for the file. */
  verb: string;
  component: ComponentType<ViewProps>;
}

const all: ViewOf[] = [];

/** Adds a view. Their order is that of the list. */
export const addView = (view: ViewOf): number => all.push(view);
export const views = (): readonly ViewOf[] => all;
