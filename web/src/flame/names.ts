// The names of frames: their texts, and which of them are the same frame.

import type {FrameName} from './columns';

/** The property by which frames are the same. */
export type MergeBy = 'function' | 'line' | 'module';

export const MERGES: readonly MergeBy[] = ['function', 'line', 'module'];

/** Returns the text of a frame, which depends on the property by which frames were merged. */
export function frameText(name: FrameName, by: MergeBy): string {
  if (by === 'module') return name.module || name.function || '(unknown module)';
  const what = functionText(name);
  if (by === 'function' || name.line === undefined) return what;
  return `${what} ${fileName(name.file ?? '')}:${name.line}`;
}

/** Returns the function's name, or that of its module if the function is not known. */
export function functionText(name: FrameName): string {
  return name.function || (name.module ? `(in ${name.module})` : '(unknown function)');
}

/** Returns where the frame is in its source, or an empty text. */
export function sourceText(name: FrameName): string {
  if (!name.file) return '';
  return name.line === undefined ? name.file : `${name.file}:${name.line}`;
}

/**
 * Returns for each name the index of the first that is the same by this property. Functions of the
 * same name in different modules are different functions.
 */
export function sameNames(names: readonly FrameName[], by: MergeBy): Uint32Array {
  const first = new Map<string, number>();
  return Uint32Array.from(names, (name, index) => {
    const key = keyText(name, by);
    const found = first.get(key);
    if (found !== undefined) return found;
    first.set(key, index);
    return index;
  });
}

/** Returns a text that two frames have in common if they are the same by this property. */
export function keyText(name: FrameName, by: MergeBy): string {
  const module = name.module ?? '';
  const key = by === 'module' && module ? [module] : [module, name.function ?? ''];
  if (by === 'line') key.push(name.file ?? '', String(name.line ?? ''));
  return key.join('\0');
}

/**
 * Returns true if `text` is like `pattern`, in which `*` stands for any characters and `?` for one.
 * Upper and lower case are the same. The work is at most the product of both lengths.
 */
export function isLike(text: string, pattern: string): boolean {
  const given = text.toLowerCase();
  const wanted = pattern.toLowerCase();
  let at = 0;
  let next = 0;
  // The last star, and the first character after those that it stands for now.
  let star = -1;
  let resume = 0;
  while (at < given.length) {
    if (next < wanted.length && wanted[next] === '*') {
      star = next++;
      resume = at;
    } else if (next < wanted.length && (wanted[next] === '?' || wanted[next] === given[at])) {
      next++;
      at++;
    } else if (star >= 0) {
      next = star + 1;
      at = ++resume;
    } else {
      return false;
    }
  }
  while (wanted[next] === '*') next++;
  return next === wanted.length;
}

function fileName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
