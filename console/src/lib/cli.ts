// The command that does the same as an action of the page.

/** shellQuote quotes a word for a POSIX shell. */
export function shellQuote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`
}

export function command(...words: (string | false | undefined)[]): string {
  return words.filter((w): w is string => typeof w === 'string' && w !== '').map(shellQuote).join(' ')
}

/** flag writes --name=value, or nothing without a value. */
export function flag(name: string, value: string | undefined): string | undefined {
  return value ? `--${name}=${value}` : undefined
}

/** withReason puts a reason into a command that the server made, in place of its word TEXT or REASON if it has one. */
export function withReason(cmd: string | undefined, reason: string): string {
  if (!cmd || !reason) return cmd ?? ''
  const quoted = shellQuote(reason)
  return /=(TEXT|REASON)\b/.test(cmd) ? cmd.replace(/=(TEXT|REASON)\b/, () => `=${quoted}`) : `${cmd} --reason=${quoted}`
}
