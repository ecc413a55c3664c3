// A small picture of live bytes over time, for the summary. A click leads to the timeline.

import {useEffect, useRef} from 'preact/hooks';

import {useAsk} from '../api/hooks';
import {Answered} from '../parts/answer';
import {bytes, seconds} from '../parts/format';
import {color, colorsChanged, units} from '../parts/preferences';
import {optionsFor} from '../state/options';
import {goTo, parameters} from '../state/state';
import type {Timeline} from './timeline-model';

const HEIGHT = 72;

function draw(canvas: HTMLCanvasElement, {live, from_seconds: from, to_seconds: to, peak}: Timeline): void {
  const scale = devicePixelRatio;
  const width = canvas.clientWidth;
  canvas.width = width * scale;
  canvas.height = HEIGHT * scale;
  const context = canvas.getContext('2d');
  if (context === null || to <= from) return;
  context.scale(scale, scale);
  const x = (time: number): number => (width * (time - from)) / (to - from);
  const y = (amount: number): number => HEIGHT - 1 - ((HEIGHT - 6) * amount) / Math.max(1, peak.bytes);
  const path = new Path2D();
  path.moveTo(0, HEIGHT);
  let last = 0;
  for (const point of live) {
    path.lineTo(x(point.time_seconds), y(last));
    path.lineTo(x(point.time_seconds), y(point.bytes));
    last = point.bytes;
  }
  path.lineTo(width, y(last));
  path.lineTo(width, HEIGHT);
  context.fillStyle = color('chosen');
  context.strokeStyle = color('accent');
  context.lineWidth = 1.3;
  context.fill(path);
  context.stroke(path);
}

function Picture({timeline}: {timeline: Timeline}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const at = canvas.current;
    if (at === null) return undefined;
    const observer = new ResizeObserver(() => draw(at, timeline));
    observer.observe(at);
    draw(at, timeline);
    return () => observer.disconnect();
  }, [timeline, colorsChanged.value]);
  const {peak} = timeline;
  return (
    <button type="button" class="sparkline" onClick={() => goTo('timeline')}
      aria-label={`Live bytes over time: ${bytes(peak.bytes, units.value)} at the peak, at ${seconds(peak.time_seconds)}. Opens the timeline`}>
      <canvas ref={canvas} />
    </button>
  );
}

export function Sparkline() {
  const asked = useAsk<Timeline>('timeline', optionsFor('timeline', parameters.value).options);
  return <Answered asked={asked} what="Reading the timeline">{(timeline) => <Picture timeline={timeline} />}</Answered>;
}
