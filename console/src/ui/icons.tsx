// The page's icons: 16 by 16, drawn with the text's colour, hidden from
// screen readers because a word stands beside each.
const PATHS = {
  now: 'M8 1.8v2M8 12.2v2M1.8 8h2M12.2 8h2M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6Z',
  clusters: 'M8 1.8 13.6 5v6L8 14.2 2.4 11V5ZM2.6 5.1 8 8.2l5.4-3.1M8 8.2v5.8',
  nodepools: 'M2.2 3h11.6v4H2.2ZM2.2 9h11.6v4H2.2ZM4.8 5h.1M4.8 11h.1',
  stuck: 'M4 2h8M4 14h8M4.8 2v2.4L8 8l3.2-3.6V2M4.8 14v-2.4L8 8l3.2 3.6V14',
  timeline: 'M2 4h6M5 8h8M3 12h5M11 3v2M2.5 7v2M11 11v2',
  executions: 'M3 8.4 6.4 12 13 4.4',
  nodes: 'M2.5 2.5h11v7h-11ZM5.5 13.5h5M8 9.5v4M4.5 6h2l1-1.8 1.4 3.4L10 6h1.5',
  coverage: 'M8 1.8 13 3.6v4.2c0 3-2 5.2-5 6.4-3-1.2-5-3.4-5-6.4V3.6ZM5.6 8l1.8 1.8 3-3.4',
  ok: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8ZM5.2 8.2l2 2 3.6-4',
  bad: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8ZM5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4',
  busy: 'M8 1.8a6.2 6.2 0 1 0 6.2 6.2M8 4.6V8l2.2 1.6',
  idle: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8Z',
  gone: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8ZM5 8h6',
  pause: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8ZM6.4 5.8v4.4M9.6 5.8v4.4',
  warn: 'M8 2.2 14.4 13.4H1.6ZM8 6.4v3.2M8 11.4v.1',
  copy: 'M5.5 5.5h7.8v7.8H5.5ZM10.5 5.3V2.7H2.7v7.8h2.6',
  sun: 'M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6ZM8 1.2v1.6M8 13.2v1.6M1.2 8h1.6M13.2 8h1.6M3.2 3.2l1.1 1.1M11.7 11.7l1.1 1.1M3.2 12.8l1.1-1.1M11.7 4.3l1.1-1.1',
  moon: 'M13.4 9.6A5.8 5.8 0 0 1 6.4 2.6a5.8 5.8 0 1 0 7 7Z',
  more: 'M3.5 8h.1M8 8h.1M12.5 8h.1',
  close: 'M4 4l8 8M12 4l-8 8',
  search: 'M7 2.4a4.6 4.6 0 1 0 0 9.2 4.6 4.6 0 0 0 0-9.2ZM10.4 10.4l3.4 3.4',
  terminal: 'M2 3h12v10H2ZM4.5 6l2 2-2 2M8.5 10h3',
  link: 'M6.6 9.4l2.8-2.8M7.4 4.6 9 3a2.8 2.8 0 0 1 4 4l-1.6 1.6M8.6 11.4 7 13a2.8 2.8 0 0 1-4-4l1.6-1.6',
  stop: 'M5.4 1.8h5.2l3.6 3.6v5.2l-3.6 3.6H5.4l-3.6-3.6V5.4ZM8 5v3.6M8 10.8v.1',
  up: 'M8 12.5v-9M4.5 7 8 3.5 11.5 7',
  down: 'M8 3.5v9M4.5 9 8 12.5 11.5 9',
  help: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8ZM6.2 6.2a1.8 1.8 0 1 1 2.6 1.7c-.6.3-.8.6-.8 1.2M8 11.2v.1',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  )
}
