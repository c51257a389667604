// One line that says what the server confirmed.
import { useSyncExternalStore } from 'react'
import { Icon } from './icons'

let message = ''
let timer: ReturnType<typeof setTimeout> | undefined
const listeners = new Set<() => void>()

function show(text: string): void {
  message = text
  for (const listener of listeners) listener()
}

export function say(text: string): void {
  clearTimeout(timer)
  show(text)
  timer = setTimeout(() => show(''), 6000)
}

export function Toast() {
  const text = useSyncExternalStore((listener) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }, () => message)
  return <div className="toast" role="status" data-shown={text !== ''}>{text && <><Icon name="ok" />{text}</>}</div>
}
