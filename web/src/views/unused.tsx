// Says which conditions of the selection a view cannot use.

export function Unused({verb, unused}: {verb: string; unused: readonly string[]}) {
  if (unused.length === 0) return null;
  return <p class="unused" role="note">Not used here, because <code>heapledger {verb}</code> has no such option: {unused.join(', ')}.</p>;
}
