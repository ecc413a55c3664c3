// A plot over time by uPlot: redrawn when colours, units or its room change; a range is chosen by
// dragging, or by keys.

import {useEffect, useRef} from 'preact/hooks';
import uPlot from 'uplot';

import {seconds} from './format';
import {color, colorsChanged, units} from './preferences';

export interface Curve {
  label: string;
  color: string;
  values: (number | null)[];
  /** Formats a value for the axis and the legend. */
  text: (value: number) => string;
  /** `y` for amounts, `count` for numbers of blocks, on an axis of its own. */
  scale: 'y' | 'count';
  isStepped: boolean;
  /** A band down to the curve before it, or to the axis. */
  isBand?: boolean;
  isDashed?: boolean;
}

interface Props {
  label: string;
  times: readonly number[];
  curves: readonly Curve[];
  marks: readonly {time: number; label: string; isPeak: boolean}[];
  range: readonly [number, number] | undefined;
  onRange: (range: [number, number] | undefined) => void;
}

/** Distances between lines of the axis: round numbers of bytes in the units that are shown. */
function distances(): number[] {
  if (units.value === 'binary') return Array.from({length: 60}, (_, power) => 2 ** power);
  return Array.from({length: 18}, (_, power) => [1, 2, 5].map((first) => first * 10 ** power)).flat();
}

function optionsOf({curves, marks, range, onRange}: Props, width: number, height: number): uPlot.Options {
  const axis = {stroke: color('soft'), grid: {stroke: color('line'), width: 1}, ticks: {stroke: color('line'), width: 1}, font: '12px sans-serif'};
  const amount = curves.find(({scale}) => scale === 'y');
  const counted = curves.find(({scale}) => scale === 'count');
  const steps = uPlot.paths.stepped?.({align: 1});
  return {
    width, height,
    scales: {x: {time: false}, y: {range: (_, __, most) => [0, Math.max(1, most * 1.05)]}, count: {range: (_, __, most) => [0, Math.max(1, most * 1.05)]}},
    cursor: {drag: {x: true, y: false, setScale: false}},
    legend: {live: true},
    series: [
      {label: 'time', value: (_, time) => time === null ? '' : seconds(time)},
      ...curves.map((curve): uPlot.Series => ({
        label: curve.label, scale: curve.scale, stroke: curve.color, width: curve.isBand === true ? 1 : 1.4, spanGaps: true, points: {show: false},
        ...(curve.isBand === true ? {fill: `${curve.color}66`} : {}), ...(curve.isDashed === true ? {dash: [5, 4]} : {}),
        ...(curve.isStepped && steps !== undefined ? {paths: steps} : {}),
        value: (_, value) => value === null ? '–' : curve.text(value),
      })),
    ],
    bands: curves.flatMap((curve, at): uPlot.Band[] => curve.isBand === true && at > 0 ? [{series: [at + 1, at]}] : []),
    axes: [
      {...axis, values: (_, splits) => splits.map(seconds)},
      {...axis, scale: 'y', size: 84, incrs: distances(), values: (_, splits) => splits.map((value) => amount?.text(value) ?? '')},
      ...(counted === undefined ? [] : [{...axis, scale: 'count', side: 1, size: 76, grid: {show: false}, values: (_: uPlot, splits: number[]) => splits.map(counted.text)} satisfies uPlot.Axis]),
    ],
    hooks: {
      draw: [(plot) => drawMarks(plot, marks)],
      ready: [(plot) => showRange(plot, range)],
      setSelect: [(plot) => {
        if (plot.select.width < 3) return;
        const [from, to] = [plot.posToVal(plot.select.left, 'x'), plot.posToVal(plot.select.left + plot.select.width, 'x')];
        onRange([from, to]);
      }],
    },
  };
}

function drawMarks(plot: uPlot, marks: Props['marks']): void {
  const context = plot.ctx;
  context.save();
  for (const {time, label, isPeak} of marks) {
    const x = Math.round(plot.valToPos(time, 'x', true)) + 0.5;
    if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
    context.strokeStyle = color(isPeak ? 'alarm' : 'rail');
    context.setLineDash(isPeak ? [] : [2, 4]);
    context.beginPath();
    context.moveTo(x, plot.bbox.top);
    context.lineTo(x, plot.bbox.top + (isPeak ? plot.bbox.height : 12));
    context.stroke();
    if (isPeak) {
      context.fillStyle = color('alarm');
      context.font = `${12 * devicePixelRatio}px sans-serif`;
      context.textAlign = x > plot.bbox.left + plot.bbox.width / 2 ? 'right' : 'left';
      context.fillText(` ${label} `, x, plot.bbox.top + 12 * devicePixelRatio);
    }
  }
  context.restore();
}

function showRange(plot: uPlot, range: Props['range']): void {
  if (range === undefined) plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
  else {
    const [left, right] = [plot.valToPos(range[0], 'x'), plot.valToPos(range[1], 'x')];
    plot.setSelect({left, top: 0, width: Math.max(3, right - left), height: plot.over.clientHeight}, false);
  }
}

export function Plot(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const {label, times, curves, marks, range} = props;
  useEffect(() => {
    const at = box.current;
    if (at === null) return undefined;
    const size = (): [number, number] => [Math.max(320, at.clientWidth), Math.max(200, at.clientHeight - 64)];
    const made = new uPlot(optionsOf(props, ...size()), [times as number[], ...curves.map(({values}) => values)], at);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      const [width, height] = size();
      if (width !== made.width || height !== made.height) made.setSize({width, height});
    });
    observer.observe(at);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [times, curves, marks, colorsChanged.value, units.value]);
  useEffect(() => {
    if (plot.current !== undefined) showRange(plot.current, range);
  }, [range?.[0], range?.[1]]);
  const onKey = (event: KeyboardEvent): void => {
    const [begin = 0, end = 1] = [times[0], times.at(-1)];
    const step = (end - begin) / (event.shiftKey ? 10 : 100);
    const [from, to] = range ?? [begin, end];
    const moves: Record<string, [number, number] | undefined> = {
      ArrowLeft: [from - step, to - step], ArrowRight: [from + step, to + step], '+': [from + step, to - step], '-': [from - step, to + step],
    };
    const next = moves[event.key];
    if (event.key === 'Escape') props.onRange(undefined);
    else if (next !== undefined && next[1] > next[0]) props.onRange([Math.max(begin, next[0]), Math.min(end, next[1])]);
    else return;
    event.preventDefault();
  };
  return <div class="plot" ref={box} role="application" tabIndex={0} aria-label={label} aria-roledescription="plot over time: arrows move the chosen range, + and - make it smaller and larger" onKeyDown={onKey} />;
}
