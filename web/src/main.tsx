// The page of `heapledger open`.

import {useSignal} from '@preact/signals';
import {render, type ComponentChildren} from 'preact';
import {useEffect, useRef} from 'preact/hooks';

import {cancelAll} from './api/ask';
import {setAgain} from './api/hooks';
import {Failure, Nothing, Progress} from './parts/answer';
import {bytes} from './parts/format';
import {keyActions, KEYS_OF_LISTS, onPageKey, useKeys} from './parts/keys';
import {copy, Message, say} from './parts/message';
import {nextTheme, nextUnits, theme, units} from './parts/preferences';
import {SelectionBar} from './parts/selection';
import {isCut} from './state/address';
import {quoted} from './state/options';
import {aboutSaved, askAgain, changedFiles, currentFile, forgetChange, fileName, isGone, memory, onVisibility, openSession, session, sessionError} from './state/session';
import {goTo, linkText, place, view} from './state/state';
import './views/all';
import {views} from './views/views';

const UNIT_NAMES = {binary: 'KiB, MiB', decimal: 'kB, MB', bytes: 'bytes'};

function Help({onClose}: {onClose: () => void}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const keys: [string, string][] = [
    ...KEYS_OF_LISTS.map(([one, does]): [string, string] => [one, does]),
    ...keyActions.value.map(({key, shown, does}): [string, string] => [shown ?? key, does]),
  ];
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClose={onClose} onClick={(event) => event.target === dialog.current && dialog.current?.close()}>
      <form method="dialog"><h2 id="help-title">Keys</h2><button aria-label="Close the list of keys">✕</button></form>
      <table><tbody>{keys.map(([one, does]) => <tr><th scope="row">{one.split(' ').map((key) => <><kbd>{key}</kbd> </>)}</th><td>{does}</td></tr>)}</tbody></table>
    </dialog>
  );
}

function Header({onHelp}: {onHelp: () => void}) {
  const share = (): void => void copy(`heapledger open ${quoted(currentFile.value?.name ?? 'FILE')}\n${linkText()}\n`, 'the link, without the secret of this server', 'link.txt');
  useKeys([
    {key: 'l', does: 'copy a link to this place', run: share},
    {key: 'u', does: 'change the units', run: nextUnits},
    {key: 't', does: 'light or dark', run: nextTheme},
    {key: '?', does: 'this list', run: onHelp},
  ]);
  return (
    <header>
      <h1>Heapledger</h1>
      <span class="file" title={currentFile.value?.path}>{currentFile.value?.name}</span>
      <span class="end group">
        <button type="button" title="Copy what leads a colleague with the same file here (l)" onClick={share}>Copy link</button>
        <button type="button" title="Units (u)" onClick={nextUnits} aria-label={`Units: ${UNIT_NAMES[units.value]}. Change them`}>{UNIT_NAMES[units.value]}</button>
        <button type="button" title="Light or dark (t)" onClick={nextTheme} aria-label={`Colours: ${theme.value}. Change them`}><span aria-hidden="true">◐</span></button>
        <button type="button" title="Keys (?)" onClick={onHelp} aria-label="Keys"><span aria-hidden="true">?</span></button>
      </span>
    </header>
  );
}

function Navigation() {
  const verbs = currentFile.value?.verbs;
  const possible = views().filter(({verb}) => verb === '' || verbs === undefined || verbs.includes(verb));
  const step = (by: number) => (): void => {
    const at = possible.findIndex(({id}) => id === view.value);
    goTo(possible[(at + by + possible.length) % possible.length]?.id ?? 'summary');
  };
  useKeys([
    {key: ']', does: 'the next view', run: step(1)}, {key: '[', does: 'the view before', run: step(-1)},
    ...possible.slice(0, 9).map(({id, label}, at) => ({key: String(at + 1), does: label.toLowerCase(), run: () => goTo(id)})),
  ], [possible.map(({id}) => id).join()]);
  return (
    <nav aria-label="Views">
      <ul>{possible.map(({id, label}) => (
        <li><button type="button" aria-current={id === view.value ? 'page' : undefined} onClick={() => goTo(id)}>{label}</button></li>
      ))}</ul>
      {aboutSaved.value.map((line) => <p class="memory">{line}</p>)}
      {memory.value === undefined ? null : (
        <p class="memory" title="Memory of the server that answers, and its bound">
          server: {bytes(memory.value.resident ?? memory.value.bytes, units.value)}
          <br />answers kept: {bytes(memory.value.bytes, units.value)} of {bytes(memory.value.bound, units.value)}
        </p>
      )}
    </nav>
  );
}

function Warnings() {
  const lines: ComponentChildren[] = [];
  if (isGone.value) {
    lines.push(<p class="banner" role="alert">The server is gone: nothing more can be asked. <span>hint: start it again with <code>heapledger open {quoted(currentFile.value?.name ?? 'FILE')}</code></span></p>);
  }
  for (const [id, what] of changedFiles.value) {
    lines.push(<p class="banner" role="alert">{fileName(String(id))} {what}: figures on this page may not agree with each other. <button type="button" onClick={() => forgetChange(id)}>Ask again</button></p>);
  }
  return <>{lines}</>;
}

function View() {
  const found = views().find(({id}) => id === view.value);
  if (found === undefined) return <Nothing why={`There is no view “${view.value}”.`} hint="The link may be from another version of Heapledger." />;
  const current = currentFile.value;
  if (current !== undefined && found.verb !== '' && !current.verbs.includes(found.verb)) {
    return <Nothing why={`${current.name} is a ${current.kind}: it does not say what this view shows.`} hint={<>See <button type="button" class="link" onClick={() => goTo('answers')}>all answers</button>: {current.verbs.join(', ')}.</>} />;
  }
  const Component = found.component;
  return <Component key={found.id} label={found.label} />;
}

function Page() {
  const isHelp = useSignal(false);
  const label = views().find(({id}) => id === view.value)?.label ?? 'Heapledger';
  useEffect(() => { document.title = `${label} – ${currentFile.value?.name ?? 'Heapledger'}`; }, [label, currentFile.value]);
  useEffect(() => { document.querySelector('main')?.scrollTo(0, 0); }, [view.value]);
  return (
    <>
      <Header onHelp={() => (isHelp.value = true)} />
      <Warnings />
      {session.value === undefined ? null : <Navigation />}
      {session.value === undefined ? null : <SelectionBar />}
      <main aria-label={label} data-view={place.value.view} tabIndex={-1}>
        {sessionError.value !== undefined ? <Failure error={sessionError.value} again={() => void openSession()} />
          : session.value === undefined ? <Progress part={null} what="Opening" /> : <View />}
      </main>
      <Message />
      {isHelp.value ? <Help onClose={() => (isHelp.value = false)} /> : null}
    </>
  );
}

setAgain(askAgain);
document.addEventListener('keydown', onPageKey);
window.addEventListener('pagehide', cancelAll);
// A page that the browser kept and shows again asks again for what was cancelled.
window.addEventListener('pageshow', (event) => { if (event.persisted) askAgain.value += 1; });
/** Says so if an address is not read to its end. */
function sayIfCut(): void {
  if (isCut(location.hash)) say('The address is too long: its last conditions and settings are left out.');
}
window.addEventListener('hashchange', sayIfCut);
sayIfCut();
const root = document.getElementById('page');
if (root !== null) render(<Page />, root);
void openSession();
document.addEventListener('visibilitychange', () => void onVisibility(document.hidden));
