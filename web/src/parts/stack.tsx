// A stack, innermost function first, and the actions on a row.

import {goTo, narrow} from '../state/state';
import {exactPattern, type Parameter} from '../state/address';
import {frameWhere, opposite, type Frame} from './rows';

/** The most frames that are elements; deeper stacks say how many are left out. */
const FRAMES_MAX = 300;

export function Stack({frames, title}: {frames: readonly Frame[]; title: string}) {
  if (frames.length === 0) return null;
  return (
    <section class="stack">
      <h3>{title}</h3>
      <ol>
        {frames.slice(0, FRAMES_MAX).map((frame) => (
          <li class={frame.inlined === true ? 'inlined' : ''} title={frame.full ?? undefined}>
            <button type="button" class="name" title="Choose the blocks whose stack goes through this function"
              onClick={() => frame.function !== undefined && narrow('function', exactPattern(frame.function))}>{frame.function ?? '(unknown)'}</button>
            <small>{frameWhere(frame)}{frame.inlined === true ? ', inlined' : ''}</small>
          </li>
        ))}
      </ol>
      {frames.length > FRAMES_MAX ? <p class="soft">{frames.length - FRAMES_MAX} more frames</p> : null}
    </section>
  );
}

/** The next questions about what a row stands for, or about its owner. */
export function RowActions({condition, isOfOwner = false}: {condition: Parameter | undefined; isOfOwner?: boolean}) {
  if (condition === undefined) return null;
  const [name, value] = condition;
  const not = opposite(condition);
  const go = (to: string) => () => narrow(name, value, to);
  return (
    <p class="actions">
      <button type="button" onClick={() => narrow(name, value)}>{isOfOwner ? 'Only its owner' : 'Only this'}</button>
      {not === undefined ? null : <button type="button" onClick={() => narrow(not[0], not[1])}>{isOfOwner ? 'All but its owner' : 'All but this'}</button>}
      {isOfOwner ? <span class="soft">All of its owner:</span> : null}
      <button type="button" onClick={go('tree')}>Its calls</button>
      <button type="button" onClick={go('timeline')}>Over time</button>
      <button type="button" onClick={go('sizes')}>Its sizes</button>
      <button type="button" onClick={go('blocks')}>Its blocks</button>
    </p>
  );
}

/** A button that looks like a link and goes to a view. */
export function ViewLink({to, settings, children}: {to: string; settings?: readonly Parameter[]; children: preact.ComponentChildren}) {
  return <button type="button" class="link" onClick={() => goTo(to, settings)}>{children}</button>;
}
