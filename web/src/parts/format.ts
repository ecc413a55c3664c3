// Figures as text. Numbers in a column have one unit each and digits of one width, so that they can
// be compared by their length.

/** Units of amounts of memory: powers of 1024, powers of 1000, or plain bytes. */
export type Units = 'binary' | 'decimal' | 'bytes';
export const UNITS: readonly Units[] = ['binary', 'decimal', 'bytes'];

const PREFIXES = {
  binary: {step: 1024, names: ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB']},
  decimal: {step: 1000, names: ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB']},
};

/** Returns a whole number with a comma between thousands. */
export function count(value: number): string {
  if (!Number.isFinite(value)) return '–';
  const digits = Math.abs(Math.round(value)).toFixed(0);
  const grouped = digits.replace(/\B(?=(\d{3})+$)/g, ',');
  return value < 0 && grouped !== '0' ? `−${grouped}` : grouped;
}

/** Returns an amount of memory: three or four digits and a unit. */
export function bytes(value: number, units: Units): string {
  if (!Number.isFinite(value)) return '–';
  if (units === 'bytes') return count(value);
  const {step, names} = PREFIXES[units];
  let amount = Math.abs(value);
  let unit = 0;
  // An amount that would be rounded up to a whole unit is shown in that unit.
  while (amount >= (unit === 0 ? step : step - 0.05) && unit < names.length - 1) {
    amount /= step;
    unit += 1;
  }
  const text = unit === 0 ? count(amount) : amount.toFixed(1);
  return `${value < 0 && text !== '0' ? '−' : ''}${text} ${names[unit]}`;
}

/** Returns a change: always with its sign, except for none. */
export function signed(text: string): string {
  return /^[−–]/.test(text) || /^[0.]+( \w+)?$/.test(text) ? text : `+${text}`;
}

/** Returns a part of a whole, given from 0 to 1. */
export function share(part: number): string {
  if (!Number.isFinite(part)) return '–';
  const percent = part * 100;
  return percent !== 0 && Math.abs(percent) < 0.05 ? '< 0.1 %' : `${percent.toFixed(1).replace('-', '−')} %`;
}

const TIMES: readonly [number, string][] = [[3600, 'h'], [60, 'min'], [1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']];

/** Returns a time, given in seconds, with three or four digits. */
export function seconds(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (value === 0) return '0 s';
  const size = Math.abs(value);
  const [unit, name] = TIMES.find(([unit]) => size >= unit) ?? [1e-9, 'ns'];
  const amount = value / unit;
  const digits = Math.abs(amount) >= 100 ? 0 : Math.abs(amount) >= 10 ? 1 : 2;
  return `${amount.toFixed(digits).replace('-', '−')} ${name}`;
}

/** Returns a time as the verbs read it, to the nanosecond. */
export function timeOption(value: number): string {
  return `${Math.max(0, value).toFixed(9).replace(/\.?0+$/, '')}s`;
}

/** Reads a time as the verbs write and read it, in seconds. */
export function parseTime(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)(ns|us|µs|ms|s|min|h)$/.exec(text.trim());
  if (match === null) return undefined;
  const unit = {ns: 1e-9, us: 1e-6, µs: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600}[match[2] as 's'];
  return Number(match[1]) * unit;
}

/** Returns the last part of a path. */
export const baseName = (path: string): string => path.slice(path.lastIndexOf('/') + 1) || path;
