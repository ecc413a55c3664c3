// The colours of boxes: by module, by type, or by growth. A colour is a pixel of a canvas, on
// machines that store the lowest byte first: red in the lowest byte, opacity in the highest.

import type {FrameName} from './columns';
import type {Graph} from './graph';

export type ColorBy = 'module' | 'type' | 'growth';
export type Theme = 'light' | 'dark' | 'forced';

/** The two metrics whose difference is the growth. */
export interface Sides {
  before: number;
  after: number;
}

/** The colours of a picture. */
export interface Palette {
  paper: number;
  /** The box of siblings that are too narrow to be shown. */
  rest: number;
  /** The mark around the chosen box, for a canvas' style. */
  outline: string;
  /** The boxes that a search has found. */
  match: number;
  /** Texts on dark and on light boxes, for a canvas' style. */
  inks: {light: string; dark: string};
  /** True if boxes need a frame because they all have the same colour. */
  isFramed: boolean;
  /** True if boxes have signs. */
  hasSigns: boolean;
  /** Returns the colour of a node's box. */
  box(node: number): number;
  /** Returns a colour nearer to the paper's, for what a search has not found. */
  dim(color: number): number;
  /** Returns 1 if a node has grown, -1 if it has shrunk, 0 if it is neither or does not matter. */
  sign(node: number): -1 | 0 | 1;
}

/** The colours of a forced theme, as the browser gave them, such as `rgb(0, 0, 0)`. */
export interface SystemColors {
  canvas: string;
  text: string;
  highlight: string;
}

// Tells growth from shrinkage for all kinds of colour blindness; the patterns do without colours.
const GROWN = rgb(0xd5, 0x5e, 0x00);
const SHRUNK = rgb(0x00, 0x72, 0xb2);
/** A change that is smaller than this part of the larger side has no sign. */
const CHANGE_MIN = 0.005;
/** The steps of a scale from no change to a new or vanished box. */
const STEPS = 64;

/** Returns the colours of a graph's boxes. */
export function paletteOf(graph: Graph, by: ColorBy, theme: Theme, sides?: Sides, system?: SystemColors): Palette {
  if (theme === 'forced' && system !== undefined) return forced(graph, system, sides);
  const isDark = theme === 'dark';
  const paper = isDark ? rgb(0x1b, 0x1f, 0x24) : rgb(0xff, 0xff, 0xff);
  const common = {
    paper,
    rest: isDark ? rgb(0x3a, 0x41, 0x49) : rgb(0xd9, 0xdd, 0xdf),
    outline: isDark ? '#ffffff' : '#000000',
    match: isDark ? rgb(0xb0, 0x8c, 0x00) : rgb(0xff, 0xd8, 0x3d),
    inks: {light: '#ffffff', dark: '#000000'},
    isFramed: false,
    hasSigns: false,
    dim: (color: number) => mixed(color, paper, isDark ? 0.6 : 0.7),
  };
  if (by === 'growth' && sides !== undefined) {
    const scale = growthScale(isDark);
    return {
      ...common,
      hasSigns: true,
      box: (node) => scale[STEPS + Math.round(STEPS * growth(graph, node, sides))]!,
      sign: (node) => signOf(growth(graph, node, sides)),
    };
  }
  const {names} = graph.tree;
  const colors = Uint32Array.from(names, (name) => nameColor(name, by, isDark));
  const root = isDark ? rgb(0x4a, 0x52, 0x5b) : rgb(0xc9, 0xce, 0xd2);
  return {...common, box: (node) => (node === 0 ? root : colors[graph.name(node)]!), sign: () => 0};
}

/** Returns the change of a node as a part of its larger side, from -1 to 1. */
export function growth(graph: Graph, node: number, {before, after}: Sides): number {
  const from = graph.total(node, before);
  const to = graph.total(node, after);
  const larger = Math.max(Math.abs(from), Math.abs(to));
  return larger === 0 ? 0 : Math.max(-1, Math.min(1, (to - from) / larger));
}

/** Returns the colour as `#rrggbb`. */
export function hex(color: number): string {
  const [red, green, blue] = channels(color);
  return `#${((1 << 24) | (red << 16) | (green << 8) | blue).toString(16).slice(1)}`;
}

/** Returns true if light text is easier to read on this colour than dark text. */
export function needsLightInk(color: number): boolean {
  // Where white and black have the same contrast by WCAG 2: sqrt(1.05 × 0.05) - 0.05.
  return luminance(color) < 0.179;
}

/** Returns the relative luminance of WCAG 2, from 0 to 1. */
export function luminance(color: number): number {
  const [red, green, blue] = channels(color).map((channel) => {
    const value = channel / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Returns the colour between two: the first at 0, the second at 1. */
export function mixed(from: number, to: number, part: number): number {
  const [a, b] = [channels(from), channels(to)];
  const between = (index: 0 | 1 | 2): number => Math.round(a[index] + (b[index] - a[index]) * part);
  return rgb(between(0), between(1), between(2));
}

export function rgb(red: number, green: number, blue: number): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function channels(color: number): [number, number, number] {
  return [color & 255, (color >>> 8) & 255, (color >>> 16) & 255];
}

function signOf(change: number): -1 | 0 | 1 {
  return change > CHANGE_MIN ? 1 : change < -CHANGE_MIN ? -1 : 0;
}

function growthScale(isDark: boolean): Uint32Array {
  const neutral = isDark ? rgb(0x45, 0x4b, 0x52) : rgb(0xd9, 0xdc, 0xde);
  return Uint32Array.from({length: 2 * STEPS + 1}, (_, step) => {
    const change = (step - STEPS) / STEPS;
    // Small changes are seen, too: the square root begins steeply.
    return mixed(neutral, change > 0 ? GROWN : SHRUNK, Math.sqrt(Math.abs(change)));
  });
}

/** One hue for each module or type; functions differ a little in lightness. */
function nameColor(name: FrameName, by: ColorBy, isDark: boolean): number {
  const group = by === 'type' ? name.type : name.module;
  const shade = ((hash(name.function ?? '') % 256) / 255 - 0.5) * 0.07;
  const chroma = group ? 0.085 : 0;
  return oklch((isDark ? 0.43 : 0.82) + shade, chroma, ((hash(group ?? '') % 3600) / 3600) * 2 * Math.PI);
}

/** Converts OKLCH to sRGB, with the matrices of Björn Ottosson's definition of OKLab. */
function oklch(lightness: number, chroma: number, hue: number): number {
  const a = chroma * Math.cos(hue);
  const b = chroma * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const channel = (linear: number): number => {
    const value = Math.max(0, Math.min(1, linear));
    return Math.round(255 * (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055));
  };
  return rgb(
    channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    channel(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  );
}

/** FNV-1a, mixed once more because similar names differ in their last characters. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  return (value ^ (value >>> 13)) >>> 0;
}

/** Boxes of the window's own colour with frames, for people who have chosen all colours. */
function forced(graph: Graph, system: SystemColors, sides?: Sides): Palette {
  const paper = parsed(system.canvas);
  const text = parsed(system.text);
  const [light, dark] = luminance(text) > luminance(paper) ? [text, paper] : [paper, text];
  return {
    paper,
    rest: mixed(paper, text, 0.3),
    outline: system.highlight,
    match: parsed(system.highlight),
    inks: {light: hex(light), dark: hex(dark)},
    isFramed: true,
    hasSigns: sides !== undefined,
    box: () => paper,
    dim: (color) => color,
    sign: (node) => (sides === undefined ? 0 : signOf(growth(graph, node, sides))),
  };
}

function parsed(color: string): number {
  const [red = 0, green = 0, blue = 0] = (color.match(/[\d.]+/g) ?? []).map(Number);
  return rgb(red, green, blue);
}
