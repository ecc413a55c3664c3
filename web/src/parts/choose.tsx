// A list to choose one of.

interface Props {
  label: string;
  value: string;
  options: readonly (readonly [value: string, label: string])[];
  onChange: (value: string) => void;
}

export function Choose({label, value, options, onChange}: Props) {
  const isKnown = options.some(([one]) => one === value);
  return (
    <label class="pick">{label}{' '}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {isKnown ? null : <option value={value}>{value}</option>}
        {options.map(([one, text]) => <option value={one}>{text}</option>)}
      </select>
    </label>
  );
}
