// The bar of the selection: the file, the moment, and conditions that can be removed.

import {useSignal} from '@preact/signals';
import {useRef} from 'preact/hooks';

import {chipsOf, valueOf} from '../state/address';
import {currentFile, session} from '../state/session';
import {change, file, narrow, parameters, setting, widen, widenAll} from '../state/state';
import {Choose} from './choose';
import {baseName, bytes, parseTime, timeOption} from './format';
import {useKeys} from './keys';
import {say} from './message';
import {units} from './preferences';

/** The conditions that can be typed, with an example of each. */
const CONDITIONS: readonly (readonly [name: string, label: string, example: string])[] = [
  ['function', 'stack goes through function', 'parse or json::*'], ['not-function', 'stack does not go through', 'parse'],
  ['allocated-by', 'allocated by function', 'push_back'], ['not-allocated-by', 'not allocated by', 'push_back'],
  ['module', 'module', 'libssl*'], ['not-module', 'not module', 'libc.so.6'],
  ['type', 'type', 'Token or std::vector*'], ['context', 'context', 'request{/index}'], ['thread', 'thread', 'worker* or #1'],
  ['process', 'process', '4411 or worker'], ['heap', 'heap or arena', 'images'],
  ['size', 'size', '1k..1M'], ['lifetime', 'lifetime', '..1ms or 1s..'], ['at', 'live at', 'peak, end or 1.5s'], ['during', 'allocated within', '10s-20s'],
];

/** The moments of the list; others are typed or chosen in the timeline. */
function momentOf(): string {
  if (setting('total') !== undefined) return 'total';
  return setting('at') ?? '';
}

function Add() {
  const name = useSignal('function');
  const text = useSignal('');
  const box = useRef<HTMLInputElement>(null);
  useKeys([{key: 'n', does: 'add a condition', run: () => box.current?.focus()}]);
  const example = CONDITIONS.find(([one]) => one === name.value)?.[2] ?? '';
  const add = (): void => {
    const value = text.value.trim();
    if (value === '') return;
    if (name.value === 'at' && value !== 'peak' && value !== 'end') {
      const time = parseTime(value);
      if (time === undefined) {
        say(`“${value}” is no moment: expected peak, end, or a time such as 1.5s`);
        return;
      }
      narrow('at', timeOption(time));
    } else narrow(name.value, value);
    text.value = '';
  };
  return (
    <form class="add" onSubmit={(event) => { event.preventDefault(); add(); }}>
      <select aria-label="Kind of condition" value={name.value} onChange={(event) => (name.value = event.currentTarget.value)}>
        {CONDITIONS.map(([one, label]) => <option value={one}>{label}</option>)}
      </select>
      <input type="text" aria-label="Condition" ref={box} placeholder={example} value={text.value} spellcheck={false} autocomplete="off" onInput={(event) => (text.value = event.currentTarget.value)} />
      <button type="submit">Add</button>
    </form>
  );
}

export function SelectionBar() {
  const chips = chipsOf(parameters.value);
  const processes = currentFile.value?.processes ?? [];
  const files = session.value?.files ?? [];
  const process = valueOf(parameters.value, 'process') ?? '';
  const setMoment = (value: string): void => change({
    at: value === '' || value === 'total' ? undefined : value, total: value === 'total' ? '' : undefined,
  });
  return (
    <div class="selection" role="region" aria-label="Which blocks">
      {files.length < 2 ? null
        : <Choose label="file" value={file.value} options={files.map(({id, name, bytes: size}) => [String(id), `${name} (${bytes(size, units.value)})`])}
          onChange={(value) => change({...Object.fromEntries(parameters.value.filter(([name]) => name === 'process' || name === 'thread').map(([name]) => [name, undefined])), file: value})} />}
      {processes.length < 2 ? null
        : <Choose label="process" value={process} options={[['', 'all'], ...processes.filter(({pid}) => pid !== null).map(({pid, name}) => [String(pid), `${baseName(name)} (${pid})`] as const)]}
          onChange={(value) => change({process: value === '' ? undefined : value})} />}
      <Choose label="live" value={momentOf()} options={[['', 'at the peak, or as usual in the view'], ['peak', 'at the peak'], ['end', 'at the end'], ['total', 'ever (all allocations)']]} onChange={setMoment} />
      <ul class="chips" aria-label="Conditions">
        {chips.map((chip) => (
          <li><button type="button" title="Remove this condition" aria-label={`Remove the condition: ${chip.label}`} onClick={() => widen(chip.parameters)}>{chip.label} <span aria-hidden="true">✕</span></button></li>
        ))}
      </ul>
      {chips.length > 1 ? <button type="button" onClick={widenAll}>Remove all</button> : null}
      <Add />
    </div>
  );
}

