// The whole picture, for files and for paper: not only the rows in the window.

import {paletteOf, type ColorBy, type Sides} from './colors';
import {hex} from './colors';
import type {Orientation} from './draw';
import type {Graph} from './graph';
import type {Labels} from './labels';
import {rangeOf, Rows} from './layout';
import {drawnBoxes, FONT, FONT_SIZE, svgFile, type DrawnBox} from './svg';

const ROW = 18;
const WIDTH = 1200;
/** A file may be tall; paper has an end. */
const FILE_ROWS_MAX = 2000;
const PAPER_ROWS_MAX = 55;

export interface PictureOf {
  graph: Graph;
  labels: Labels;
  zoomed: number;
  orientation: Orientation;
  matches: Uint8Array | undefined;
  colors: ColorBy;
  sides: Sides | undefined;
  title: string;
  describe: (node: number) => string[];
}

interface Drawn {
  width: number;
  height: number;
  paper: string;
  boxes: DrawnBox[];
}

/** Draws in light colours what fills the width, with all rows up to a bound. */
function drawn(of: PictureOf, rowsMax: number): Drawn {
  const {graph, labels, orientation, matches, zoomed} = of;
  const rows = new Rows(graph);
  const range = rangeOf(graph, zoomed);
  rows.ensure(range, (range.to - range.from) / WIDTH, rowsMax);
  let count = 0;
  while (count < rows.length && rows.row(count)!.length > 0) count++;
  const height = count * ROW;
  const palette = paletteOf(graph, of.colors, 'light', of.sides);
  const look = {range, offset: 0, rowHeight: ROW, orientation, matches};
  const boxes = drawnBoxes(WIDTH, height, rows, look, palette, labels, (node) => of.describe(node).join('\n'));
  return {width: WIDTH, height, paper: hex(palette.paper), boxes};
}

/** Returns the picture as a file. */
export function svgOf(of: PictureOf): string {
  const {width, height, paper, boxes} = drawn(of, FILE_ROWS_MAX);
  return svgFile(width, height, paper, of.title, boxes);
}

/** The picture as elements, because printers have more dots than a canvas. */
export function PaperPicture(of: PictureOf) {
  const {width, height, boxes} = drawn(of, PAPER_ROWS_MAX);
  return (
    <svg viewBox={`0 0 ${width} ${height}`} font-family={FONT} font-size={FONT_SIZE} role="img" aria-label={of.title}>
      {boxes.map((box) => (
        <>
          <rect x={box.x} y={box.y} width={box.width} height={box.height} fill={box.fill} />
          {box.label !== '' && (
            <text x={box.x + 3} y={box.y + 13} fill={box.ink}>
              {box.label}
            </text>
          )}
        </>
      ))}
    </svg>
  );
}

/** Offers bytes as a file. */
export function save(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // The browser has begun to read the file by the next turn of its loop.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
