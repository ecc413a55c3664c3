// Cells of CSV (RFC 4180).

/**
 * Returns a value as a cell, numbers in full. A text that a spreadsheet would take for a formula gets
 * an apostrophe before it: names come from files that anybody may have made.
 */
export function csvCell(value: string | number | null): string {
  if (value === null) return '';
  if (typeof value === 'number') return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
