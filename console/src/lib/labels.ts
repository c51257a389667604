// Labels as lines of text, key=value.
import { S } from '../strings'

export function formatLabels(labels: Record<string, string> | undefined): string {
  return Object.entries(labels ?? {}).map(([k, v]) => `${k}=${v}`).join('\n')
}

export function parseLabels(text: string): { labels: Record<string, string> } | { error: string } {
  const labels: Record<string, string> = {}
  for (const [i, line] of text.split('\n').entries()) {
    if (!line.trim()) continue
    const at = line.indexOf('=')
    const key = line.slice(0, at).trim()
    if (at < 1 || !key) return { error: S.notALabel(i + 1, line.trim()) }
    if (key in labels) return { error: S.labelTwice(key) }
    labels[key] = line.slice(at + 1).trim()
  }
  return { labels }
}
