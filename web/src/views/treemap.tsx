// The treemap: each row is a rectangle as large as its share. Painted on a canvas; the same rows
// are a list beside it for keyboards and screen readers.

import {useSignal} from '@preact/signals';
import {useEffect, useRef} from 'preact/hooks';

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {bytes, count, share} from '../parts/format';
import {savePicture} from '../parts/message';
import {color, colorsChanged, units} from '../parts/preferences';
import {BY, rowName, type Ranks, type Row} from '../parts/rows';
import {optionsFor} from '../state/options';
import {change, parameters, setting} from '../state/state';
import {RowDetails} from './ranked';
import {tileAt, tilesOf, type Tile} from './treemap-layout';
import {Unused} from './unused';
import type {ViewProps} from './views';

const SERIES = 9;

/** Returns the black or white that can be read on a colour of six hexadecimal digits. */
function inkOn(background: string): string {
  const part = (at: number): number => {
    const value = parseInt(background.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.2 ? '#000' : '#fff';
}

function paint(canvas: HTMLCanvasElement, tiles: readonly Tile[], active: number, by: string): void {
  const scale = devicePixelRatio;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = canvas.clientHeight * scale;
  const context = canvas.getContext('2d');
  if (context === null) return;
  context.scale(scale, scale);
  context.textBaseline = 'top';
  tiles.forEach(({row, x, y, width, height}, at) => {
    const fill = color(`series-${at % SERIES}`);
    context.fillStyle = fill;
    context.fillRect(x, y, width, height);
    if (width > 46 && height > 18) {
      context.save();
      context.beginPath();
      context.rect(x + 4, y, width - 8, height);
      context.clip();
      context.fillStyle = inkOn(fill);
      context.font = '600 12px sans-serif';
      context.fillText(rowName(row, by), x + 5, y + 4);
      context.font = '12px sans-serif';
      if (height > 34) context.fillText(`${bytes(row.bytes ?? 0, units.value)} · ${share(row.share ?? 0)}`, x + 5, y + 19);
      context.restore();
    }
    if (at === active) {
      context.strokeStyle = color('ink');
      context.lineWidth = 3;
      context.strokeRect(x + 1.5, y + 1.5, Math.max(0, width - 3), Math.max(0, height - 3));
    }
  });
}

function Map({ranks, label, metric, chosen, onChoose}: {ranks: Ranks; label: string; metric: string; chosen: Row | undefined; onChoose: (row: Row | undefined) => void}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const tiles = useRef<Tile[]>([]);
  const active = useSignal(-1);
  const title = useSignal('');
  const amount = (row: Row): number => metric === 'blocks' ? row.blocks ?? 0 : row.bytes ?? 0;
  const draw = (): void => {
    const at = canvas.current;
    if (at === null) return;
    tiles.current = tilesOf(ranks.rows, amount, at.clientWidth, at.clientHeight);
    paint(at, tiles.current, tiles.current.findIndex(({row}) => row === chosen), ranks.by);
  };
  useEffect(() => {
    const at = canvas.current;
    if (at === null) return undefined;
    const observer = new ResizeObserver(draw);
    observer.observe(at);
    draw();
    return () => observer.disconnect();
  }, [ranks, metric, chosen, colorsChanged.value, units.value]);
  const choose = (index: number): void => {
    active.value = index;
    onChoose(tiles.current[index]?.row);
  };
  const onKey = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1};
    const step = steps[event.key];
    if (event.key === 'Escape') choose(-1);
    else if (step !== undefined) choose(Math.min(tiles.current.length - 1, Math.max(0, active.value + step)));
    else return;
    event.preventDefault();
  };
  const where = (event: MouseEvent): number => tileAt(tiles.current, event.offsetX, event.offsetY);
  const text = (row: Row): string => `${rowName(row, ranks.by)}: ${bytes(row.bytes ?? 0, units.value)} in ${count(row.blocks ?? 0)} blocks, ${share(row.share ?? 0)}`;
  return (
    <div class="treemap">
      <canvas ref={canvas} tabIndex={0} role="application" title={title.value} aria-roledescription="treemap: arrows go from the largest part to smaller ones"
        aria-label={chosen === undefined ? `${label}, ${count(ranks.rows.length)} parts` : text(chosen)} onKeyDown={onKey}
        onClick={(event) => choose(where(event))} onMouseMove={(event) => { const row = tiles.current[where(event)]?.row; title.value = row === undefined ? '' : text(row); }} />
      <ol class="unseen" aria-label={`${label} as a list`}>{ranks.rows.slice(0, 200).map((row) => <li>{text(row)}</li>)}</ol>
    </div>
  );
}

export function TreemapView({label}: ViewProps) {
  const by = setting('by') ?? 'type';
  const metric = setting('metric') ?? 'bytes';
  const chosen = useSignal<Row | undefined>(undefined);
  const {options, unused} = optionsFor('top', parameters.value);
  const asked = useAsk<Ranks>('top', [...options, ['by', by], ['metric', metric], ['rows', '300']]);
  const row = chosen.value !== undefined && asked.value?.rows.includes(chosen.value) === true ? chosen.value : undefined;
  return (
    <div class="fill">
      <Unused verb="top" unused={unused} />
      <div class="tools">
        <Choose label="by" value={by} options={BY} onChange={(value) => change({by: value})} />
        <Choose label="area" value={metric} options={[['bytes', 'bytes'], ['blocks', 'blocks']]} onChange={(value) => change({metric: value})} />
        <button type="button" onClick={() => savePicture(document.querySelector('.treemap canvas'), color('paper'), 'treemap.png')}>Save as PNG</button>
        {asked.value === undefined ? null : <span class="soft">{bytes(asked.value.total.bytes, units.value)} in {count(asked.value.total.blocks)} blocks</span>}
      </div>
      <Answered asked={asked} what="Reading types">{(ranks) => ranks.rows.length === 0 ? <Nothing why="No block is chosen." hint="Remove conditions above, or choose another moment." /> : (
        <div class={`split${row === undefined ? '' : ' with-details'}`}>
          <div class="fill"><Map ranks={ranks} label={label} metric={metric} chosen={row} onChoose={(next) => (chosen.value = next)} /></div>
          {row === undefined ? null : <aside class="details" aria-label="Details of the part"><RowDetails row={row} by={ranks.by} close={() => (chosen.value = undefined)} /></aside>}
        </div>
      )}</Answered>
    </div>
  );
}
