import assert from 'node:assert/strict';
import test from 'node:test';

import {stackOf, type StackFrame} from './block-stacks';

const frame = (number: number, caller: number | null): StackFrame => ({frame: number, caller, function: `f${number}`});
const names = (frames: StackFrame[], at: number | null): string => stackOf(frames, at).map((one) => one.function).join(' ');

test('a stack goes from its innermost frame to the outermost', () => {
  const frames = [frame(0, null), frame(1, 0), frame(2, 1), frame(3, 0)];
  assert.equal(names(frames, 2), 'f2 f1 f0');
  assert.equal(names(frames, 3), 'f3 f0');
  assert.equal(names([...frames].reverse(), 2), 'f2 f1 f0');
  assert.equal(names(frames, null), '');
});

test('callers that are missing or form a circle end a stack', () => {
  assert.equal(names([frame(0, 1), frame(1, 0)], 0), 'f0 f1');
  assert.equal(names([frame(0, 7)], 0), 'f0');
  const deep = Array.from({length: 30_000}, (_, at) => frame(at, at === 0 ? null : at - 1));
  assert.equal(stackOf(deep, 29_999).length, 30_000);
});
