// A link for lists: it has no state of its own, so that it costs little when it comes into view.
import { useRouter } from '@tanstack/react-router'
import type { MouseEvent, ReactNode } from 'react'
import { hostPath } from '../lib/base'

/** PathLink links to a view by its path. The browser keeps what it does with other buttons and with keys, such as opening a tab. */
export function PathLink({ path, className, children }: { path: string; className?: string; children: ReactNode }) {
  const router = useRouter()
  const open = (e: MouseEvent) => {
    if (e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
    e.preventDefault()
    void router.navigate({ to: path })
  }
  const preload = () => void router.preloadRoute({ to: path })
  return <a href={hostPath(path)} className={className} onClick={open} onMouseEnter={preload} onFocus={preload}>{children}</a>
}
