// Columns for plots: fewer points, lists joined on one axis, stacked sums.

import type {LivePoint, Timeline} from './timeline-model';

/** A column of a plot; null where there is no point. */
export type Values = (number | null)[];

/**
 * Returns at most about `most` points of a curve. Of each interval the first, the least, the largest
 * and the last point stay, so that peaks are where they were.
 */
export function thinned<T extends LivePoint>(points: readonly T[], most: number): T[] {
  if (points.length <= most) return [...points];
  const buckets = Math.max(1, Math.floor(most / 4));
  const kept: T[] = [];
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const from = Math.floor((bucket * points.length) / buckets);
    const to = Math.floor(((bucket + 1) * points.length) / buckets);
    let [least, largest] = [from, from];
    for (let at = from; at < to; at += 1) {
      if ((points[at] as T).bytes < (points[least] as T).bytes) least = at;
      if ((points[at] as T).bytes > (points[largest] as T).bytes) largest = at;
    }
    const chosen = [...new Set([from, least, largest, to - 1])].sort((a, b) => a - b);
    for (const at of chosen) kept.push(points[at] as T);
  }
  return kept;
}

/** Returns the value of a step function at a time: that of the last point before it. */
export function valueAt(points: readonly LivePoint[], time: number): LivePoint | undefined {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((points[middle] as LivePoint).time_seconds <= time) low = middle + 1;
    else high = middle;
  }
  return points[low - 1];
}

/** Returns sums of the first groups, then of one more, and so on: the upper edges of bands. */
export function stacked(groups: readonly (readonly number[])[]): number[][] {
  const sums: number[][] = [];
  for (const values of groups) {
    const below = sums.at(-1);
    sums.push(values.map((value, at) => value + (below?.[at] ?? 0)));
  }
  return sums;
}

export interface Joined {
  times: number[];
  columns: Values[];
}

/** Puts curves with times of their own on one axis; a curve is null at the times of others. */
export function joined(curves: readonly {times: readonly number[]; values: readonly number[]}[]): Joined {
  const times = [...new Set(curves.flatMap((curve) => curve.times as number[]))].sort((a, b) => a - b);
  const at = new Map(times.map((time, index) => [time, index]));
  const columns = curves.map((curve) => {
    const values: Values = Array(times.length).fill(null) as Values;
    curve.times.forEach((time, index) => (values[at.get(time) as number] = curve.values[index] ?? null));
    return values;
  });
  return {times, columns};
}

/** A moment that is marked in the plot. */
export interface Mark {
  time: number;
  label: string;
  /** Peaks are marked more strongly. */
  isPeak: boolean;
}

/** The most starts of programs that are marked; more would hide the curve. */
const MARKS_MOST = 60;

/** Returns the marked moments: the peak, starts of programs, pauses. */
export function marksOf({peak, programs, pauses}: Timeline): Mark[] {
  const marks: Mark[] = [{time: peak.time_seconds, label: 'peak', isPeak: true}];
  for (const {how, from_seconds: time, command, pid} of programs.slice(0, MARKS_MOST)) {
    marks.push({time, label: `${how}: ${command.slice(0, 80)} (${pid})`, isPeak: false});
  }
  for (const {from_seconds: time} of pauses) marks.push({time, label: 'recording paused', isPeak: false});
  return marks;
}
