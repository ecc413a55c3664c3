// The histogram of sizes: classes that end at powers of two.

import {useAsk} from '../api/hooks';
import {Answered, Nothing} from '../parts/answer';
import {Choose} from '../parts/choose';
import {bytes, count, share} from '../parts/format';
import {copy} from '../parts/message';
import {units} from '../parts/preferences';
import {asText, type Column} from '../parts/table-model';
import {optionsFor} from '../state/options';
import {change, narrow, parameters, setting} from '../state/state';
import {Unused} from './unused';
import type {ViewProps} from './views';

interface SizeClass { bytes: number; blocks: number; share: number; size_min: number; size_max: number }
interface Sizes { metric: string; at: string; total: {bytes: number; blocks: number}; rows: readonly SizeClass[] }

const sizesText = (row: SizeClass): string => row.size_min === row.size_max ? bytes(row.size_max, units.value) : `${bytes(row.size_min, units.value)} – ${bytes(row.size_max, units.value)}`;
const COLUMNS: Column<SizeClass>[] = [
  {id: 'size_min', label: 'from', kind: 'bytes', value: (row) => row.size_min}, {id: 'size_max', label: 'to', kind: 'bytes', value: (row) => row.size_max},
  {id: 'bytes', label: 'bytes', kind: 'bytes', value: (row) => row.bytes}, {id: 'blocks', label: 'blocks', kind: 'blocks', value: (row) => row.blocks},
  {id: 'share', label: 'share', kind: 'share', value: (row) => row.share},
];

export function SizesView({label}: ViewProps) {
  const metric = setting('metric') ?? 'bytes';
  const {options, unused} = optionsFor('sizes', parameters.value);
  const asked = useAsk<Sizes>('sizes', [...options, ['metric', metric]]);
  return (
    <div class="fill">
      <Unused verb="sizes" unused={unused} />
      <div class="tools">
        <Choose label="metric" value={metric} options={[['bytes', 'bytes'], ['blocks', 'blocks']]} onChange={(value) => change({metric: value})} />
        <button type="button" onClick={() => asked.value !== undefined && void copy(asText(asked.value.rows, COLUMNS, units.value), 'the histogram as text', 'sizes.txt')}>Copy as text</button>
      </div>
      <Answered asked={asked} what="Counting sizes">{({rows, total}) => rows.length === 0 ? <Nothing why="No block is chosen." hint="Remove conditions above." /> : (
        <div class="histogram" tabIndex={0} role="region" aria-label={label}>
          <p><b>{bytes(total.bytes, units.value)}</b> in <b>{count(total.blocks)}</b> blocks. A click on a class chooses its blocks.</p>
          <table>
            <thead><tr><th scope="col">size of a block</th><th scope="col">bytes</th><th scope="col">blocks</th><th scope="col">share</th><th scope="col"><span class="unseen">bar</span></th></tr></thead>
            <tbody>{rows.map((row) => {
              const most = rows.reduce((most, one) => Math.max(most, metric === 'blocks' ? one.blocks : one.bytes), 1);
              return (
                <tr>
                  <th scope="row"><button type="button" class="link" onClick={() => narrow('size', `${row.size_min}..${row.size_max}`, 'table')}>{sizesText(row)}</button></th>
                  <td>{bytes(row.bytes, units.value)}</td><td>{count(row.blocks)}</td><td>{share(row.share)}</td>
                  <td class="wide"><i class="column" aria-hidden="true" style={{width: `${(100 * (metric === 'blocks' ? row.blocks : row.bytes)) / most}%`}} /></td>
                </tr>
              );
            })}</tbody>
          </table>
        </div>
      )}</Answered>
    </div>
  );
}
