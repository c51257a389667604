// The English texts that only the view Resource has. They load with it.
import { S as shared, n, plural } from './strings'

export const S = {
  ...shared,
  copyYaml: 'Copy YAML',
  updated: 'Updated', deletion: 'Deletion requested',
  lastAttempt: 'last attempt', ends: 'ends',
  itsCluster: 'its cluster',
  parts: 'Parts', tabs: { story: 'Story', timeline: 'Timeline', revisions: 'Revisions', yaml: 'YAML' }, edit: 'Edit', readOnly: 'read only',
  generations: 'Generations', desired: 'Desired', observedLowest: 'Observed by all adapters', behind: (k: number) => `${k} behind`, oldestReport: 'Oldest report',
  sentinelDecision: "Sentinel's decision", decisionStates: { due: 'event due', waiting: 'waiting', invalid: 'invalid resource', not_found: 'not found', error: 'not decided' } as Record<string, string>, nextEvent: 'next event', decisionInputs: (observed: number, generation: number, phase: string, age: number) => `generation ${observed} of ${generation} observed · phase ${phase} · max age ${age < 120 ? `${n(age)} s` : `${n(Math.round(age / 60))} min`}`, notSelected: (k: number) => `No sentinel watches it: ${plural(k, 'SentinelConfig does', 'SentinelConfigs do')} not select it.`, noDecision: 'No SentinelConfig of this kind is visible to you. The command line explains a decision by a configuration file:', rulesOnly: 'These are the rules alone. This also knows the events that were published already:',
  adapterReports: 'Adapter reports', noReports: 'No adapter has reported yet.', reported: 'reported', generationOf: (o: number, g: number) => `generation ${o} of ${g}`, conditions: 'Conditions',
  syncedChanges: 'Changes synced', withPools: 'of the cluster and its node pools', unsyncedSince: 'Unsynced since', failedAttempts: 'Failed attempts', worker: 'Worker', waitsFor: 'Waits for', paused: 'Paused', shoot: 'Shoot', lastError: 'Last error', gardenerSays: 'Gardener says',
  openTimeline: 'Open in timeline', revisions: 'Revisions', noRevisions: 'No revisions are stored', current: 'current', changedFrom: (a: number, b: number) => `Generation ${a} → ${b}`, firstRevision: (g: number) => `Generation ${g}, the oldest that is stored`, yaml: 'YAML',
  syncRunning: 'A worker is syncing it now.',
  syncPausedBy: (who = 'Someone', why = '') => `${who} paused the sync${why && `: ${why}`}`, syncPausedHint: 'Gardener does not get changes of this cluster until the sync is resumed. Paused',
  cliDescribe: 'Describe', cliYaml: 'YAML', cliWait: 'Wait until ready',
}
