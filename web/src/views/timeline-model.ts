// The timeline as columns of numbers: fewer points, stacked sums, rates.

export interface LivePoint { time_seconds: number; bytes: number; blocks: number }
export interface MemoryPoint {
  time_seconds: number;
  resident: number;
  resident_anonymous: number;
  resident_file: number;
  brk: number;
  mappings: number;
  swapped: number;
}
export interface ProgramSpan {
  image: number;
  pid: number;
  how: string;
  from_seconds: number;
  to_seconds: number | null;
  exit: unknown;
  command: string;
}
export interface Timeline {
  from_seconds: number;
  to_seconds: number;
  peak: LivePoint;
  live: readonly LivePoint[];
  memory: readonly MemoryPoint[];
  programs: readonly ProgramSpan[];
  pauses: readonly {from_seconds: number; to_seconds: number | null}[];
  by?: string | null;
  times_seconds?: readonly number[] | null;
  groups?: readonly {name: string; bytes: readonly number[]}[] | null;
}
