// The picture as SVG: for a file, and for paper.

import {hex, needsLightInk, type Palette} from './colors';
import {boxes, type Look} from './draw';
import {signed, type Labels} from './labels';
import type {Rows} from './layout';
import {NONE} from './tree';

/** A box of the picture with its texts. */
export interface DrawnBox {
  x: number;
  y: number;
  width: number;
  height: number;
  fill: string;
  ink: string;
  /** The text that fits on the box. */
  label: string;
  /** All that is known about it. */
  title: string;
}

/** Boxes narrower than this are left out: nobody sees them, and they would be most of a file. */
const WIDTH_MIN = 0.5;
const BOXES_MAX = 100_000;
/** The width of a character of the font, which has one width, as a part of its size. */
export const CHARACTER = 0.62;
export const FONT_SIZE = 11;
export const FONT = 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';

/** Returns the boxes of a picture. The rows must have been made for the look. */
export function drawnBoxes(
  width: number,
  height: number,
  rows: Rows,
  look: Look,
  palette: Palette,
  labels: Labels,
  title: (node: number) => string,
): DrawnBox[] {
  const drawn: DrawnBox[] = [];
  for (const box of boxes(width, height, rows, look, WIDTH_MIN)) {
    if (drawn.length === BOXES_MAX) break;
    const isFound = box.node !== NONE && look.matches?.[rows.graph.name(box.node)];
    let color = box.node === NONE ? palette.rest : palette.box(box.node);
    if (look.matches !== undefined) color = isFound ? palette.match : palette.dim(color);
    const sign = box.node === NONE ? 0 : palette.sign(box.node);
    drawn.push({
      x: box.x,
      y: box.y,
      width: Math.max(WIDTH_MIN, box.width - 1),
      height: box.height - 1,
      fill: hex(color),
      ink: needsLightInk(color) ? palette.inks.light : palette.inks.dark,
      label: signed(sign, labels.text(box.node), Math.floor((box.width - 7) / (CHARACTER * FONT_SIZE))),
      title: box.node === NONE ? 'frames too narrow to be shown' : title(box.node),
    });
  }
  return drawn;
}

/** Writes a picture as a file of SVG 1.1, which needs nothing else. */
export function svgFile(width: number, height: number, background: string, title: string, drawn: readonly DrawnBox[]): string {
  const parts = [
    '<?xml version="1.0" encoding="UTF-8"?>\n',
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`,
    ` font-family="${escaped(FONT)}" font-size="${FONT_SIZE}">\n<title>${escaped(title)}</title>\n`,
    `<rect width="100%" height="100%" fill="${background}"/>\n`,
  ];
  for (const box of drawn) {
    parts.push(
      `<g><title>${escaped(box.title)}</title><rect x="${box.x}" y="${box.y}" width="${box.width}"`,
      ` height="${box.height}" fill="${box.fill}"/>`,
    );
    if (box.label !== '') {
      const baseline = box.y + Math.round((box.height + FONT_SIZE * 0.7) / 2);
      parts.push(`<text x="${box.x + 3}" y="${baseline}" fill="${box.ink}">${escaped(box.label)}</text>`);
    }
    parts.push('</g>\n');
  }
  parts.push('</svg>\n');
  return parts.join('');
}

/** Escapes a text for XML, which has no way to write most control characters. */
function escaped(text: string): string {
  return text
    .toWellFormed()
    .replace(/[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, '\ufffd')
    .replace(/&/g, '&amp;')
    .replace(/</g, '&lt;')
    .replace(/>/g, '&gt;')
    .replace(/"/g, '&quot;');
}
