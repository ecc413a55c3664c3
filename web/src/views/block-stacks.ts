// Stacks of blocks, which share their frames: each frame names its caller.

import type {Frame} from '../parts/rows';

export interface StackFrame extends Frame { frame: number; caller: number | null }
export interface StackStart { stack: number; frame: number | null }

/** Returns the frames of a stack, the innermost first. A circle of callers ends it. */
export function stackOf(frames: readonly StackFrame[], innermost: number | null): Frame[] {
  const stack: Frame[] = [];
  const seen = new Set<number>();
  let at = innermost;
  while (at !== null && !seen.has(at)) {
    seen.add(at);
    // Frames are listed by their numbers; a list in another order is searched.
    const wanted: number = at;
    const frame: StackFrame | undefined = frames[wanted]?.frame === wanted ? frames[wanted] : frames.find((one) => one.frame === wanted);
    if (frame === undefined) break;
    stack.push(frame);
    at = frame.caller;
  }
  return stack;
}
