// Comma-separated values, RFC 4180.

/** csvCell quotes where needed. A cell that a spreadsheet would run as a formula gets an apostrophe. */
export function csvCell(value: unknown): string {
  if (value === undefined || value === null) return ''
  let text = typeof value === 'object' ? JSON.stringify(value) : String(value)
  if (typeof value === 'string' && /^[=+\-@\t\r]/.test(text)) text = `'${text}`
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export function csvRow(cells: unknown[]): string {
  return `${cells.map(csvCell).join(',')}\r\n`
}
