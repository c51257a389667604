import { command, flag } from '../lib/cli'
import { S } from '../strings'
import type { ActionSpec } from './dialog'

/** syncAction describes an action on the sync of clusters to Gardener. */
export function syncAction(verb: 'retry' | 'pause' | 'resume', names: string[], run: ActionSpec['run']): ActionSpec {
  return {
    label: S.syncVerbs[verb],
    icon: verb === 'pause' ? 'pause' : verb === 'retry' ? 'busy' : 'ok',
    title: S.syncTitles[verb](names.length === 1 ? names[0]! : S.nClusters(names.length)),
    explain: S.syncExplains[verb],
    reason: verb === 'pause' ? 'required' : 'optional',
    expiry: verb === 'pause',
    command: ({ reason, until }) => command('fleetloop', 'clusters', verb, ...names.slice(0, 5), flag('reason', reason), flag('for', until)) + (names.length > 5 ? ' …' : ''),
    run,
    done: S.syncDone[verb](names.length),
  }
}
