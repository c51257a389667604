import { S } from '../strings'
import { Dialog } from '../ui/dialog'
import { VIEWS } from './Root'

export default function Help({ onClose }: { onClose: () => void }) {
  const keys: [string, string][] = [
    ['/', S.keyFilter], ['j  k', S.keyMove], ['Enter', S.keyOpen], ['x', S.keySelect], ['+  −  ←  →', S.keyZoom], ['Esc', S.keyClose], ['?', S.help],
    ...VIEWS.map((v): [string, string] => [`g ${v.key}`, v.label]),
  ]
  return (
    <Dialog title={S.keys} onClose={onClose}>
      <dl className="keys">{keys.map(([key, what]) => <div key={key}><dt>{key.split('  ').map((k) => <kbd key={k}>{k}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
    </Dialog>
  )
}
