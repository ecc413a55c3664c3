// Virtual lists: rows of one height, of which only those in view are elements.

/** The tallest element that browsers lay out exactly, in pixels, with a margin. */
export const HEIGHT_MAX = 8_000_000;

export interface Visible {
  /** The first row in view, and the one behind the last. */
  first: number;
  end: number;
  /** The height of the whole list, in pixels. */
  height: number;
  /** The position of the first row in view, in pixels from the top of the list. */
  top: number;
}

/**
 * Returns the rows in view. In a list too tall for an element, the scroll position is scaled: each
 * row can be reached, but a pixel of the bar is more than a pixel of the list.
 */
export function visibleRows(rows: number, rowHeight: number, viewHeight: number, scrollTop: number): Visible {
  const full = rows * rowHeight;
  const height = Math.min(full, HEIGHT_MAX);
  const room = Math.max(1, height - viewHeight);
  const scroll = Math.min(Math.max(0, scrollTop), room);
  const offset = full <= HEIGHT_MAX ? scroll : (scroll / room) * Math.max(0, full - viewHeight);
  const first = Math.min(Math.max(0, rows - 1), Math.max(0, Math.floor(offset / rowHeight) - 4));
  const end = Math.min(rows, Math.ceil((offset + viewHeight) / rowHeight) + 4);
  return {first, end: Math.max(first, end), height, top: first * rowHeight - offset + scroll};
}

/** Returns the scroll position that brings a row into view, nearest to the present one. */
export function scrollFor(row: number, rows: number, rowHeight: number, viewHeight: number, scrollTop: number): number {
  const full = rows * rowHeight;
  const scale = full <= HEIGHT_MAX ? 1 : (HEIGHT_MAX - viewHeight) / (full - viewHeight);
  const offset = scrollTop / scale;
  const top = row * rowHeight;
  if (top < offset) return top * scale;
  if (top + rowHeight > offset + viewHeight) return (top + rowHeight - viewHeight) * scale;
  return scrollTop;
}
