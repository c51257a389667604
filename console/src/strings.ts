// The English texts of the page. A view has those that no other part shows in strings.NAME.ts, so that they load with it.

export const n = (count: number): string => count.toLocaleString('en')
export const plural = (count: number, one: string, many: string): string => `${n(count)} ${count === 1 ? one : many}`

export const S = {
  // Frame
  now: 'Now', clusters: 'Clusters', nodepools: 'Node pools', stuck: 'Stuck', timeline: 'Timeline', executions: 'Executions', nodes: 'Nodes', coverage: 'Coverage',
  kinds: { clusters: 'Clusters', nodepools: 'Node pools', executions: 'Executions', nodes: 'Nodes' },
  views: 'Views', more: 'More', skip: 'Skip to content', loading: 'Loading', select: 'Select', close: 'Close', back: 'Back', all: 'All', any: 'any', show: 'Show', open: 'Open',
  none: '–', unknown: 'unknown', copied: 'Copied', local: 'Local time', localTime: 'local time', zoneHint: 'Switch between local time and UTC',
  toLight: 'Switch to light', toDark: 'Switch to dark', help: 'Keyboard shortcuts', signOut: 'Sign out',
  dueNow: 'due now', expired: 'expired', ago: (text: string) => `${text} ago`, inTime: (text: string) => `in ${text}`, asOf: (text: string) => `as of ${text} ago`,
  connectionLost: 'connection lost, trying again', sourceLost: (topics: string) => `no news of ${topics}, trying again`, count: n,
  topics: { clusters: 'clusters', nodepools: 'node pools', changes: 'changes', executions: 'executions', nodes: 'nodes', sentinels: 'sentinels' } as Record<string, string>,
  copyCommand: 'Copy command', copyId: 'Copy id', cli: 'CLI',
  forbidden: 'You may not see this', forbiddenHint: 'Ask an administrator for the role that reads it.',
  notFound: 'Not found', notFoundHint: 'It does not exist, you may not see it, or this server does not offer it.',
  unreachable: 'The server cannot be reached', unreachableHint: 'The page tries again. Check your network if this stays.', broken: 'This part of the page failed', tryAgain: 'Try again',
  noPage: 'Page not found', noPageHint: 'Choose a view from the navigation.',
  keys: 'Keyboard', keyFilter: 'Focus the filter', keyMove: 'Next and previous row', keyOpen: 'Open the row', keySelect: 'Select the row', keyZoom: 'Zoom and move the timeline', keyClose: 'Leave a field or a dialog',

  // Words that many views share
  name: 'Name', phase: 'Phase', state: 'State', kind: 'Kind', labels: 'Labels', generation: 'Generation', gardener: 'Gardener', cluster: 'Cluster', node: 'Node', actor: 'Actor', created: 'Created',
  reason: 'Reason', optional: '(optional)', reasonHint: 'Why? Everyone who reads the timeline sees this.', age: 'Age', host: 'Host cluster', action: 'Action',
  attempts: 'Attempts', nextTry: 'Next try', waits: 'Waits', blockedBy: 'Blocked by', of: 'of', oldest: 'oldest', forExample: 'for example', forAge: 'for', expires: 'Expires', requestExpires: 'Request expires',
  via: 'via', id: 'Id', link: 'Link', time: 'Time', session: 'Session', outcome: 'Outcome', dryRun: 'dry run', selector: 'Selector', added: 'added: ', removed: 'removed: ', difference: 'Difference',
  byPerson: (who: string) => `by ${who}`, noDifference: 'Nothing differs.', unchangedLines: (count: number) => `${plural(count, 'unchanged line', 'unchanged lines')}`,
  sameInTerminal: 'The same in a terminal', waitingForServer: 'Waiting for the server…', endsBy: 'Ends automatically', never: 'never', hours: (h: number) => `after ${plural(h, 'hour', 'hours')}`, days: (d: number) => `after ${d} days`,
  noMatch: 'Nothing matches the filter', noMatchHint: 'Remove a part of the filter to see more.', clear: 'Clear filter', selectRow: (name: string) => `Select ${name}`,

  states: {
    Ready: 'Ready', Provisioning: 'Provisioning', Pending: 'Pending', Failed: 'Failed', Deleting: 'Deleting',
    synced: 'Synced', running: 'Running', pending: 'Pending', backing_off: 'Backing off', stuck: 'Stuck', paused: 'Paused',
    ready: 'Ready', progressing: 'Progressing', error: 'Error', deleting: 'Deleting', deleted: 'Deleted',
    '': 'New', validating: 'Validating', validated: 'Validated', waiting_approval: 'Waits for approval', executing: 'Executing', rollback_ready: 'Done, reversible', completed: 'Completed', failed: 'Failed', succeeded: 'Succeeded',
    Succeeded: 'Succeeded', PartiallySucceeded: 'Partly succeeded',
    detected: 'Detected', cordoned: 'Cordoned', draining: 'Draining', repairing: 'Repairing', returning: 'Returning', held: 'Held', back: 'Back', delivered: 'Delivered',
    retrying: 'Retrying', skipped: 'Skipped', rejected: 'Rejected', expired: 'Expired',
  } as Record<string, string>,

  // Now
  nowHint: 'Is something on fire?', calm: 'Nothing is on fire.',
  clustersFailed: (k: number) => `${plural(k, 'cluster has', 'clusters have')} failed`, syncsStuck: (k: number) => `${plural(k, 'sync is', 'syncs are')} stuck`,
  gapsNow: (k: number) => `${plural(k, 'resource is', 'resources are')} watched by no sentinel`, waitingNow: (k: number) => `${plural(k, 'execution waits', 'executions wait')} for approval`,
  drainsBlocked: (k: number) => `${plural(k, 'drain is', 'drains are')} blocked by pods`, undeliveredOfNodes: (k: number) => `${plural(k, 'change event of nodes waits', 'change events of nodes wait')} for delivery`, undeliveredOfExecutions: (k: number) => `${plural(k, 'change event of executions waits', 'change events of executions wait')} for delivery`,
  sync: 'Sync to Gardener', noSync: 'No cluster-worker runs.', oldestUnsynced: 'Oldest unsynced', oldestNotReady: 'Oldest not ready', noneYet: 'None yet.',
  topReasons: 'Top reasons', topReasonsHint: 'one cause, or many?', noReasons: 'Nothing reports a failure.', share: (reason: string) => `Share of: ${reason}`, showStuck: (reason: string) => `Show what is stuck because of: ${reason}`,
  waitingApproval: 'Waiting for approval', nothingWaits: 'Nothing waits for you.', nodesOut: 'Nodes out of service', noNodesOut: 'Every node is in service.',
  budget: 'Nodes out of service', budgetOf: (where: string) => (where ? `Nodes out of service in ${where}` : 'Nodes out of service'), budgetUse: (used: number, limit: number) => `${used} of at most ${limit}`, budgetCounts: 'The controller took these out. Nodes that others cordoned, or that are not ready, use the limit too.', budgetBlocked: 'Repairs wait for the budget:',
  sentinelsNotReady: 'Sentinels not ready', gaps: 'Gaps', overlaps: 'Overlaps', deliveries: 'Deliveries of change events', undelivered: 'Undelivered change events', undeliveredOfHosts: 'Undelivered, of nodes and executions', failingDeliveries: 'Failing deliveries', givenUp: 'Given up in 24 hours',
  checkEach: 'Check each resource', checking: 'Checking…', checked: (k: number) => `${plural(k, 'resource', 'resources')} checked`, others: 'Others',
  eachWatchedOnce: (k: number) => `Each of ${plural(k, 'resource', 'resources')} is watched by exactly one SentinelConfig.`, unreadable: (k: number) => `${plural(k, 'resource is', 'resources are')} invalid, so no sentinel watches ${k === 1 ? 'it' : 'them'}.`,
  severalAPIs: (urls: string) => `The SentinelConfigs name several fleet APIs: ${urls}. All were compared with the resources of this one, so this result is not certain.`,
  inexact: (why: string) => `Changes during the check may be missing: ${why}.`,
  noneUndelivered: 'No delivery of a change event of a cluster fails.', showAllChanges: 'Close', onlyFirst: (k: number) => `Only the first ${k} are shown.`,
  failingNow: (k: number) => `${plural(k, 'delivery of a change event fails', 'deliveries of change events fail')}`, givenUpNow: (k: number) => `${plural(k, 'delivery of a change event was', 'deliveries of change events were')} given up`,
  latestChanges: 'Latest changes', noChanges: 'No changes.', noChangesHint: 'Nothing changed in this window. Zoom out, or remove a filter.',

  // Lists
  filterName: 'Filter by name', labelSelector: 'Label selector', selectorExample: 'region=eu-west, tier in (a,b)', groupBy: 'Group by', withoutLabel: '(no label)', inPhase: 'In phase', observed: (o: number, g: number) => `${o} of ${g}`,
  ofOneCluster: 'Of one cluster', nFailed: (k: number) => `${n(k)} failed`, nNotReady: (k: number) => `${n(k)} not ready`, allReady: 'all ready',
  listHint: (total: number, filtered: boolean) => `${n(total)} ${filtered ? 'match' : 'in all'}`, tooMany: (total: number, shown: number) => `The table shows ${n(shown)} of ${n(total)}. Filter, or export all as CSV.`,
  noResources: { clusters: 'There are no clusters', nodepools: 'There are no node pools' }, noResourcesHint: 'Create one with "fleetloop create".',
  csv: 'CSV', exporting: (done: number, total: number) => `${n(done)} of ${n(total)}…`, exported: (k: number) => `Exported ${plural(k, 'row', 'rows')}.`, exportFailed: (why: string) => `The export failed: ${why}`,

  // One resource
  editOf: (name: string) => `Edit ${name}`, onePerLine: 'one key=value per line', specJson: 'Spec, as JSON', specNotObject: 'The spec must be a JSON object.', specNotJson: (why: string) => `The spec is not JSON: ${why}`,
  notALabel: (line: number, text: string) => `Line ${line} of the labels is not key=value: ${text}`, labelTwice: (key: string) => `The label ${key} is there twice.`,
  review: 'Show the difference', nothingChanged: 'Nothing changed', send: 'Send the change', reviewHint: (g: number) => `This is sent for generation ${g} only. If someone changed it meanwhile, nothing is sent.`,
  changedMeanwhile: 'It was changed meanwhile, so nothing was sent', changedMeanwhileHint: 'Compare your edit with the current version.', compareAgain: 'Compare again', saved: (name: string, g: number) => `Saved ${name}, generation ${g}.`,
  syncVerbs: { retry: 'Retry', pause: 'Pause', resume: 'Resume' }, nClusters: (k: number) => plural(k, 'cluster', 'clusters'),
  syncTitles: { retry: (what: string) => `Retry the sync of ${what}`, pause: (what: string) => `Pause the sync of ${what}`, resume: (what: string) => `Resume the sync of ${what}` },
  syncExplains: { retry: 'The sync is due now, and its failures count from zero.', pause: 'Gardener keeps what it has until the sync is resumed. A running call is completed.', resume: 'The sync is due again, with all changes since the pause.' },
  syncDone: { retry: (k: number) => `Retry requested for ${plural(k, 'cluster', 'clusters')}.`, pause: (k: number) => `Paused ${plural(k, 'cluster', 'clusters')}.`, resume: (k: number) => `Resumed ${plural(k, 'cluster', 'clusters')}.` },

  // Stuck
  stuckHint: 'What waits, how long, and for what?', filterStuck: 'Filter by name, cause or message', longerThan: 'Longer than', anyTime: 'any time', bulk: 'Actions on the selected clusters', selectClusters: 'Select all clusters', unselect: (k: number) => `${plural(k, 'cluster', 'clusters')} selected · unselect`,
  causes: { adapter: 'Adapter', gardener: 'Gardener', paused: 'Paused', none_reported: 'No report', children: 'Its node pools', approval: 'Approval', pods: 'Pods', budget: 'Budget', person: 'Needs a person' } as Record<string, string>,
  approvalsOf: (got: number, want: number, who: string) => `${got} of ${want} approvals, requested by ${who}`, podBlocks: (pod: string, more: number) => (more > 0 ? `${pod} and ${more} more cannot be evicted` : `${pod} cannot be evicted`),
  partly: (changed: number, failed: string[]) => `${n(changed)} changed, ${n(failed.length)} not. ${failed.slice(0, 5).join('; ')}`, nothingStuck: 'Nothing is stuck', nothingStuckHint: 'Everything became ready in time.', firstOnly: (k: number) => `The ${n(k)} that wait longest. Filter to see others.`,

  // Timeline
  filterText: 'Text in the change', filters: 'Filters', span: 'Time span', spans: { '15m': '15 min', '1h': '1 h', '6h': '6 h', '24h': '24 h', '7d': '7 d', '30d': '30 d' } as Record<string, string>,
  zoom: 'Zoom', zoomIn: 'Zoom in', zoomOut: 'Zoom out', earlier: 'Earlier', later: 'Later', backToNow: 'Back to now', lanesBy: 'Lanes by', withoutDryRun: 'without', onlyDryRun: 'only',
  incidentLink: 'Copy incident link', print: 'Print', laneTitle: (name: string, k: number, f: number) => `${name}: ${plural(k, 'change', 'changes')}, ${n(f)} failed`, noName: '(none)', noLanes: 'No changes in this window.', moreLanes: (k: number) => `${plural(k, 'more lane is', 'more lanes are')} not shown.`,
  changesWord: 'changes', failedWord: 'failed', dragHint: 'Drag to zoom.', nChanges: (k: number, more: boolean) => (more ? `The latest ${n(k)} changes` : plural(k, 'change', 'changes')), healthEvent: 'Health report', moreFields: (k: number) => `and ${plural(k, 'more field', 'more fields')}`,

  // Executions
  executionsHint: 'May I say yes?', filterExecutions: 'Filter by action, target or person', impact: 'Impact', requestedBy: 'Requested by',
  groups: { waiting: 'Waiting', running: 'Running', reversible: 'Can be rolled back', ended: 'Ended' }, noExecutions: 'No executions', noExecutionsHint: 'Nothing was requested yet, or you may not list it.',
  noHosts: 'No host cluster is connected', noHostsHint: 'Executions, node faults and sentinels live in Kubernetes. Connect a host cluster in the configuration of the console.',
  stopAll: 'Emergency stop', stopAllOf: (host: string) => `Stop all executions on ${host}`, stopExplain: 'No execution starts until the stop ends. Running actions continue; the command below cancels them too with --cancel-running.', stopped: (host: string) => `Executions on ${host} are stopped.`, stoppedOn: (host: string) => `Emergency stop on ${host}: no execution starts`,
  resumeAll: 'End the stop', resumeAllOf: (host: string) => `Let executions start again on ${host}`, resumeExplain: 'Executions that wait start again.', resumed: (host: string) => `The stop on ${host} has ended.`,
  verbs: { approve: 'Approve', reject: 'Reject', cancel: 'Cancel execution', rollback: 'Roll back', hold: 'Hold', release: 'Release', describe: 'Describe', log: 'Log', audit: 'Audit' } as Record<string, string>,

  // Nodes
  nodesHint: 'Which node is sick, and what is being done?', stages: 'Stages', filterNodes: 'Filter by node, fault or pod', noFaults: 'No node has a fault', noFaultsHint: 'Faults that monitors report appear here.',
  heldByBudget: (name: string) => `is protected by the disruption budget ${name}`, heldBy: (what: string) => `blocks the drain: ${what}`, podsLeft: 'Pods left', deadline: 'Drain ends', faults: 'Faults', history: 'History',
  nodeTitles: { hold: (name: string) => `Hold ${name} out of service`, release: (name: string) => `Release ${name}` },
  nodeExplains: { hold: 'The node stays out of service after its repair until it is released.', release: 'The node returns to service, although the controller would keep it out.' },
  nodeDone: { hold: (name: string) => `${name} is held.`, release: (name: string) => `${name} is released.` },

  // Deliveries of a change event
  eventsWait: (k: number) => `${plural(k, 'event waits', 'events wait')}`, eventsLost: (k: number) => `${plural(k, 'event', 'events')} not delivered`, lastDelivery: 'last delivered',
  notRecorded: (why: string) => `Not recorded: ${why}.`, nAttempts: (k: number) => plural(k, 'attempt', 'attempts'), resend: 'Send again', resendTitle: (sink: string) => `Send this event to ${sink} again`,
  resendExplain: 'The event is sent with the same id. The request becomes a change event of its own.', resendDelivered: 'The sink has accepted this event. It gets it once more, with the same id; some sinks show it twice.', resendDone: (sink: string) => `The event is queued for ${sink}.`,

  // Coverage
  coverageHint: 'Is every resource watched once?', coveredOnce: 'Every resource is watched exactly once', coveredOnceHint: (k: number) => `${plural(k, 'sentinel has', 'sentinels have')} no gap and no overlap.`, gapsHint: 'nothing watches these', overlapsHint: 'more than one watches these',
  nResources: (k: number) => plural(k, 'resource', 'resources'), notReady: 'Not ready', watches: 'Watches', everything: 'everything', published: 'Events published', lastPoll: 'Last poll', shares: 'Shares', share_n: (i: number) => `Share ${i}`, nobody: 'nobody', lag: (s: number) => `${n(Math.round(s))} s behind`,
  gapOf: (k: number) => `${plural(k, 'resource is', 'resources are')} not watched by any sentinel.`, overlapOf: (k: number) => `${plural(k, 'resource is', 'resources are')} watched more than once.`,
  noSentinels: 'There are no SentinelConfigs', noSentinelsHint: 'Sentinels that run from a file are not listed here.',

  // Sign in
  signInTo: 'Sign in to Fleetloop', signIn: 'Sign in', signInOidc: "Continue with your organisation's account", token: 'Token', tokenHint: 'The server keeps it for the session. The browser does not store it.', demoPeople: 'Demo: continue as', signInFailed: 'You are not signed in', signInAgain: 'Try again.',
  signInErrors: { unavailable: 'The identity provider cannot be reached. Try again later.', expired: 'The sign-in took too long, or another tab began one. Try again.', denied: 'The identity provider refused the sign-in.', refused: 'Your account may not use this console.' } as Record<string, string>,
  noSignIn: 'This server needs no sign-in.',
  roles: { requests: 'requests executions', approves: 'approves executions', administrator: 'administrator' } as Record<string, string>,

  // Labels of commands
  cliClusters: 'Clusters', cliSync: 'Failing syncs', cliWaiting: 'Waiting executions', cliList: 'This list', cliChanges: 'Changes', cliDeliveries: 'Deliveries of this event', cliStuck: 'Stuck syncs', cliRetryAll: 'Retry all stuck', cliFaults: 'Node faults', cliWatch: 'Watch', cliCoverage: 'Coverage', cliPlan: 'Due events',
}
