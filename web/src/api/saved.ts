// The answers of a page that was saved as one file. They are blocks in the page, compressed by
// gzip, in base64. Nothing is fetched: a question that is not among them is answered from the call
// tree if that has the figures, or else with the command that asks the recording.

import {readColumns, type Columns} from '../flame/columns';
import type {Parameter} from '../state/address';
import {commandText} from '../state/options';
import {bytesOf, chosen, isChoice, treeAnswer} from './saved-tree';
import type {Session} from './session';

/** A question whose answer was saved. */
interface SavedAnswer {
  verb: string;
  options: readonly Parameter[];
  notes?: readonly string[];
  /** The number of the block with the answer. */
  block?: number;
  /** The failure, if there is no answer. */
  error?: unknown;
}

interface Manifest {
  session: Session;
  answers: readonly SavedAnswer[];
  stacks: Stacks;
  cut: {share: number; answers: number};
}

/** The element with the list of answers. */
const FIRST = 'saved';

/** The stacks of all answers as a tree: nodes with their frames, and the nodes of the frames outside of them. */
interface Stacks {
  frames: readonly unknown[];
  frame: readonly number[];
  parent: readonly number[];
}

/** True if this page was saved, so that no server is asked. */
export const isSaved = (globalThis.document as Document | undefined)?.getElementById(FIRST) instanceof Object;

/** Options that change nothing. */
const USUAL = new Set([JSON.stringify(['metric', 'bytes'])]);

/** Returns what two questions have in common that differ in the order of options, or in rows. */
function keyOf(verb: string, options: readonly Parameter[]): string {
  const sorted = options.filter((one) => one[0] !== 'rows' && !USUAL.has(JSON.stringify(one)));
  sorted.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return JSON.stringify([verb, sorted]);
}

const rowsOf = (options: readonly Parameter[]): number | undefined => {
  const text = options.find(([name]) => name === 'rows')?.[1];
  return text === undefined ? undefined : Number(text);
};

/** Unpacks a block of the page. */
async function unpack(id: string): Promise<Uint8Array> {
  const text = document.getElementById(id)?.textContent ?? '';
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The answers of a saved page. */
export class Store {
  private readonly byKey = new Map<string, SavedAnswer[]>();

  /** `block` returns the bytes of a block. */
  constructor(private readonly manifest: Manifest, private readonly block: (number: number) => Promise<Uint8Array>) {
    for (const answer of manifest.answers) {
      const key = keyOf(answer.verb, answer.options);
      this.byKey.set(key, [...(this.byKey.get(key) ?? []), answer]);
    }
  }

  /** The sentences about what the file has, and lacks. */
  about(): string[] {
    const {answers, cut} = this.manifest;
    const lines = [`saved with ${answers.length} answers`];
    if (cut.share > 0) lines.push(`functions with less than ${Number((100 * cut.share).toPrecision(2))} % of a tree count for their callers`);
    if (cut.answers > 0) lines.push(`${cut.answers} answers were left out to keep it small`);
    return lines;
  }

  /** Answers an address as the server would. */
  async answer(address: string): Promise<Response> {
    if (address === 'api/session') return respond(JSON.stringify(this.manifest.session));
    const [path = '', query = ''] = address.split('?');
    const verb = path === 'api/columns' ? 'columns' : decodeURIComponent(path.replace(/^api\/ask\//, ''));
    const options: Parameter[] = [...new URLSearchParams(query)];
    const saved = this.find(verb, options);
    if (saved !== undefined) return this.respond(saved, verb, options);
    return (await this.fromTree(verb, options)) ?? this.nothing(verb, options);
  }

  /** Returns the answer with as many rows as are wanted, or with the most. */
  private find(verb: string, options: readonly Parameter[]): SavedAnswer | undefined {
    const wanted = rowsOf(options);
    const found = (this.byKey.get(keyOf(verb, options)) ?? []).filter((one) => (rowsOf(one.options) === undefined) === (wanted === undefined));
    found.sort((a, b) => (rowsOf(a.options) ?? 0) - (rowsOf(b.options) ?? 0));
    return found.find((one) => (rowsOf(one.options) ?? 0) >= (wanted ?? 0)) ?? found.at(-1);
  }

  private async respond({block, error, notes = [], options: saved}: SavedAnswer, verb: string, options: readonly Parameter[]): Promise<Response> {
    if (block === undefined) return respond(JSON.stringify({error}), notes, 422);
    const bytes = verb === 'columns' ? await this.block(block) : this.withStacks(await this.block(block));
    const [wanted, most] = [rowsOf(options), rowsOf(saved)];
    if (wanted === undefined || most === undefined || wanted === most) return respond(bytes, notes);
    const value = JSON.parse(new TextDecoder().decode(bytes)) as {rows?: unknown[]; rows_all?: number};
    if (wanted < most) return respond(JSON.stringify({...value, rows: value.rows?.slice(0, wanted)}), notes);
    if ((value.rows_all ?? 0) <= most) return respond(bytes, notes);
    return respond(bytes, [...notes, `This file was saved with the first ${most} rows. All: ${this.command(verb, options)}`]);
  }

  /** Puts the stacks back into an answer, which has `{"saved": node}` in place of each. */
  private withStacks(bytes: Uint8Array): Uint8Array {
    const text = new TextDecoder().decode(bytes);
    if (!text.includes('{"saved":')) return bytes;
    const {frames, frame, parent} = this.manifest.stacks;
    const value: unknown = JSON.parse(text, (key, value: unknown) => {
      const node = key === 'stack' && value !== null && typeof value === 'object' ? (value as {saved?: unknown}).saved : undefined;
      if (typeof node !== 'number') return value;
      const stack = [];
      for (let at = node; at >= 0; at = parent[at]!) stack.push(frames[frame[at]!]);
      return stack;
    });
    return new TextEncoder().encode(JSON.stringify(value));
  }

  /** Answers a question about the call tree that chooses functions, or smaller nodes. */
  private async fromTree(verb: string, options: readonly Parameter[]): Promise<Response | undefined> {
    if (verb !== 'columns' && verb !== 'tree') return undefined;
    const own = (name: string): boolean => isChoice(name) || (verb === 'tree' && (name === 'threshold' || name === 'metric'));
    const saved = this.find('columns', options.filter(([name]) => !own(name)));
    if (saved?.block === undefined) return undefined;
    const tree = readColumns(await this.block(saved.block));
    const left = chosen(tree, options);
    if (left === undefined) return undefined;
    const notes = notesOf(tree, left);
    if (verb === 'columns') return respond(bytesOf(left), notes);
    const answer = treeAnswer(left, options);
    return answer === undefined ? undefined : respond(JSON.stringify(answer), notes);
  }

  private nothing(verb: string, options: readonly Parameter[]): Response {
    const about = this.manifest.session.files.find(({id}) => options.some(([name, value]) => name === 'file' && value === String(id)));
    if (verb !== 'columns' && about !== undefined && !about.verbs.includes(verb)) {
      const message = `\`${verb}\` cannot be asked about \`${about.name}\``;
      return respond(JSON.stringify({error: {message, causes: [], hint: `its verbs: ${about.verbs.join(', ')}`}}), [], 404);
    }
    const message = `this file was saved with ${this.manifest.answers.length} answers, and the one to this question is not among them: ask the recording`;
    return respond(JSON.stringify({error: {message, causes: [], hint: this.command(verb, options)}}), [], 404);
  }

  private command(verb: string, options: readonly Parameter[]): string {
    const {files} = this.manifest.session;
    return commandText(verb === 'columns' ? 'tree' : verb, options, (id) => files.find((file) => String(file.id) === id)?.name ?? 'FILE');
  }
}

/** Returns what is inexact about a choice in a tree without its small nodes. */
function notesOf({cut}: Columns, left: Columns): string[] {
  const notes = ['This answer was made from the call tree in this file.'];
  if (cut.nodes > 0 && left.names.length > 0) notes.push(`The tree lacks ${cut.nodes} small subtrees, which count for their callers: choices do not see their functions.`);
  return notes;
}

function respond(body: string | Uint8Array, notes: readonly string[] = [], status = 200): Response {
  // Headers can have nothing but ASCII.
  const ascii = JSON.stringify(notes).replace(/[^ -~]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return new Response(body as BodyInit, {status, headers: {'heapledger-notes': ascii}});
}

let store: Promise<Store> | undefined;

/** Returns the answers in this page. */
export function savedStore(): Promise<Store> {
  store ??= unpack(FIRST).then((bytes) =>
    new Store(JSON.parse(new TextDecoder().decode(bytes)) as Manifest, (number) => unpack(`${FIRST}-${number}`)));
  return store;
}
