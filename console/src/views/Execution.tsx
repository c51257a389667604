// May I say yes? One execution: what it would change, why, who asked, and what may go wrong.
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import { readText, write } from '../api/client'
import { type RawExecution, readExecution } from '../api/hosts'
import { auditQuery, executionPath, executionQuery } from '../api/queries'
import type { ConditionResult, Execution } from '../api/types'
import { readUnified } from '../lib/diff'
import { withReason } from '../lib/cli'
import { toYaml } from '../lib/yaml'
import { Head } from '../shell/head'
import { S } from '../strings.execution'
import { Age, Answer, Cli, Command, Copy, Failure, Moment, Notice, Panel, State, Tag } from '../ui/basics'
import { Action, type ActionSpec } from '../ui/dialog'
import { Diff } from '../ui/diff'
import { useHosts } from '../ui/hosts'
import { Icon } from '../ui/icons'

export function ExecutionView() {
  const { host, ns, name } = useParams({ strict: false }) as { host: string; ns: string; name: string }
  const query = useQuery(executionQuery(host, ns, name))
  return (
    <>
      {!query.data && <Head title={name} />}
      <Answer query={query} rows={10}>{(e) => <One key={`${host}/${ns}/${name}`} e={{ ...e, host }} asOf={query.dataUpdatedAt} />}</Answer>
    </>
  )
}

const ENDED = ['completed', 'failed']

function One({ e, asOf }: { e: Execution; asOf: number }) {
  return (
    <>
      <p className="crumbs"><Link to="/executions">{S.executions}</Link> / {e.host} / {e.namespace}</p>
      <Head title={<>{e.action} <span className="thin">{e.target}</span></>} hint={<><State of={e.phase} /> {e.dry_run && <Tag>{S.dryRun}</Tag>} {e.environment && <Tag tone={e.environment === 'production' ? 'warn' : undefined}>{e.environment}</Tag>} <span className="mono">{e.name}</span> <Copy text={e.name} label={S.copyName} /></>} asOf={asOf}>
        <Cli commands={Object.entries(e.command ?? {}).map(([verb, cmd]) => [S.verbs[verb] ?? verb, cmd])} />
      </Head>
      <Decide e={e} />
      <div className="tiles">
        <Panel title={S.planChanges} className="two" aside={e.plan_hash && <span className="dim">{S.plan} <span className="mono">{e.plan_hash.slice(0, 12)}</span> <Copy text={e.plan_hash} label={S.copyHash} /></span>}>
          {e.impact && <p className="impact">{e.impact}</p>}
          {e.plan?.diff ? <Diff lines={readUnified(e.plan.diff)} label={S.planChanges} /> : <p className="dim">{e.plan ? S.noDifference : S.noPlan}</p>}
          {(e.plan?.steps?.length ?? 0) > 0 && (
            <>
              <h3>{S.steps}</h3>
              <ol className="steps">{e.plan?.steps?.map((s, i) => <li key={i}><code>{[s.verb, s.resource, [s.namespace, s.name].filter(Boolean).join('/')].filter(Boolean).join(' ')}</code>{s.description && <span>{s.description}</span>}</li>)}</ol>
            </>
          )}
        </Panel>
        <Panel title={S.request}>
          <dl className="facts">
            <div><dt>{S.requestedBy}</dt><dd><b>{e.requested_by ?? S.unknown}</b> · <Age at={e.created} /></dd></div>
            {e.requested_by_agent && <div><dt>{S.assistant}</dt><dd>{e.requested_by_agent}</dd></div>}
            <div><dt>{S.reason}</dt><dd>{e.reason || <span className="dim">{S.noReason}</span>}</dd></div>
            <div><dt>{S.hostCluster}</dt><dd>{e.host}</dd></div>
            <div><dt>{S.target}</dt><dd>{e.target}</dd></div>
            {e.plan?.resources_affected !== undefined && <div><dt>{S.objects}</dt><dd className="num">{e.plan.resources_affected}</dd></div>}
            {e.plan?.replicas_changed && <div><dt>{S.replicas}</dt><dd className="num">{e.plan.replicas_changed}</dd></div>}
            {e.parameters && Object.keys(e.parameters).length > 0 && <div className="wide"><dt>{S.parameters}</dt><dd><pre className="code small">{toYaml(e.parameters)}</pre></dd></div>}
            {e.rollback_of && <div><dt>{S.rollbackOf}</dt><dd><Link to="/executions/$host/$ns/$name" params={{ host: e.host, ns: e.namespace, name: e.rollback_of }}>{e.rollback_of}</Link></dd></div>}
          </dl>
        </Panel>
        <Panel title={S.policyDecision} aside={e.policy && <State of={e.policy.allowed ? 'Ready' : 'Failed'} label={!e.policy.allowed ? S.denied : e.policy.required_approval ? S.allowedIfApproved : S.allowed} />}>
          {e.policy
            ? (
              <dl className="facts">
                {e.policy.name && <div><dt>{S.policyRules}</dt><dd>{e.policy.name}</dd></div>}
                <div><dt>{S.requires}</dt><dd>{[e.policy.required_approval && S.anApproval, e.policy.required_dry_run && S.aDryRun].filter(Boolean).join(', ') || S.nothing}</dd></div>
                {e.policy.required_dry_run && <div><dt>{S.dryRun}</dt><dd>{e.dry_run_result?.performed ? <State of={e.dry_run_result.success ? 'succeeded' : 'failed'} /> : S.notYet}</dd></div>}
                {e.policy.mode && <div><dt>{S.mode}</dt><dd>{e.policy.mode}</dd></div>}
                {e.policy.evaluated && <div><dt>{S.evaluated}</dt><dd><Age at={e.policy.evaluated} /></dd></div>}
                {(e.policy.violations ?? []).map((v) => <div key={v} className="wide"><dt className="state bad"><Icon name="bad" />{S.violation}</dt><dd>{v}</dd></div>)}
                {(e.policy.warnings ?? []).map((w) => <div key={w} className="wide"><dt className="state warn"><Icon name="warn" />{S.warning}</dt><dd>{w}</dd></div>)}
              </dl>
            )
            : <p className="dim">{S.noPolicy}</p>}
        </Panel>
        <Panel title={S.approvals} aside={e.approval && e.approval.required > 0 && <b className="num">{e.approval.received} / {e.approval.required}</b>}>
          {e.approval && e.approval.required > 0 && <p className="dim">{S.whoMay(e.approval.groups ?? [], e.approval.not_requester === true)}</p>}
          <ul className="conditions">
            {(e.approval?.decisions ?? []).map((d) => <li key={d.approver}><State of={d.decision === 'Approve' ? 'Ready' : 'Failed'} label={`${d.approver}: ${d.decision === 'Approve' ? S.approved : S.rejected}`} />{!d.current && <Tag tone="warn">{S.otherPlan}</Tag>}{d.reason && <span className="message">{d.reason}</span>}</li>)}
          </ul>
          {(e.approval?.decisions ?? []).length === 0 && <p className="dim">{e.approval?.required ? S.nobodyYet : S.noApprovalNeeded}</p>}
        </Panel>
        <Panel title={S.rollback}>
          {e.rollback
            ? e.rollback.available
              ? <><p><State of="Ready" label={S.reversible} /></p><p className="dim">{S.rollbackBy} <code>{e.rollback.action}</code>.</p></>
              : <><p><State of="Failed" label={S.irreversible} /></p><p className="dim">{e.rollback.reason}</p></>
            : <p className="dim">{S.rollbackUnknown}</p>}
        </Panel>
        <Panel title={S.checks} className="two">
          <Checks e={e} />
        </Panel>
        <Panel title={S.phases}>
          <ol className="phases">{(e.phases ?? []).map((p, i) => <li key={`${p.phase}${i}`}><State of={p.phase} /><span className="dim"><Moment at={p.at} /></span></li>)}</ol>
          {e.message && <p className="message">{e.message}</p>}
        </Panel>
        {(e.waiting_change_events?.length ?? 0) > 0 && (
          <Panel title={S.deliveries}>
            <ol className="phases">{e.waiting_change_events?.map((c) => <li key={c.action + c.at}><State of="pending" label={c.action} /><span className="dim"><Moment at={c.at} /></span><span className="message">{S.waitsForSinks(c.sinks)}</span></li>)}</ol>
          </Panel>
        )}
        <Log e={e} />
        <Audit e={e} />
        <Panel title={S.object} className="three"><details><summary>{S.showYaml}</summary><pre className="code" tabIndex={0}>{toYaml(e.object ?? {})}</pre></details></Panel>
      </div>
    </>
  )
}

/** Decide is the question, what may be answered, and why not. */
function Decide({ e }: { e: Execution }) {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const what = e.impact ?? `${e.action} ${e.target ?? ''}`
  const host = useHosts().find((h) => h.name === e.host)
  const path = executionPath(e.host, e.namespace, e.name)
  const send = (verb: string, body: object) => async () => {
    const answer = readExecution(await write<RawExecution>('POST', `${path}/${verb}`, body))
    if (verb === 'rollback') await navigate({ to: '/executions/$host/$ns/$name', params: { host: e.host, ns: answer.namespace, name: answer.name } })
    else queries.setQueryData(executionQuery(e.host, e.namespace, e.name).queryKey, answer)
    void queries.invalidateQueries({ queryKey: ['executions'] })
  }
  const make = (verb: 'approve' | 'reject' | 'cancel' | 'rollback', more: Partial<ActionSpec>): ActionSpec => ({
    label: S.verbs[verb]!, title: S.decideTitles[verb](e.name), reason: verb === 'approve' ? 'optional' : 'required',
    command: ({ reason }) => withReason(e.command?.[verb], reason),
    done: S.decideDone[verb](e.name),
    run: ({ reason }) => send(verb, { reason, plan_hash: e.plan_hash })(),
    ...more,
  })
  const specs = {
    approve: make('approve', { tone: 'primary', icon: 'ok', reason: 'required', explain: S.approveExplain(what, e.plan_hash?.slice(0, 12) ?? '') }),
    reject: make('reject', { tone: 'danger', icon: 'bad', explain: S.rejectExplain }),
    cancel: make('cancel', { explain: S.cancelExplain }),
    rollback: make('rollback', { explain: S.rollbackExplain }),
  }
  const verbs = Object.keys(specs) as (keyof typeof specs)[]
  const offered = verbs.filter((v) => e.can?.[v]?.allowed && host?.writes !== false)
  const waiting = e.phase === 'waiting_approval'
  // A new plan closes an open dialog, so the page says why.
  const firstPlan = useRef<string>(undefined)
  if (waiting) firstPlan.current ??= e.plan_hash
  const replanned = waiting && firstPlan.current !== e.plan_hash
  const relevant: (keyof typeof specs)[] = waiting ? ['approve', 'reject'] : e.phase === 'rollback_ready' ? ['rollback'] : []
  const refused = relevant.filter((v) => !offered.includes(v))
  const why = host?.writes === false ? host.why_not : refused.map((v) => e.can?.[v]?.reason).find(Boolean)
  if (ENDED.includes(e.phase) && offered.length === 0) {
    return e.message ? <Notice icon={e.phase === 'failed' ? 'bad' : 'ok'} tone={e.phase === 'failed' ? 'bad' : 'ok'} title={S.states[e.outcome ?? ''] ?? S.states[e.phase] ?? e.phase}>{e.reason_detail && <Tag tone="bad">{e.reason_detail}</Tag>} {e.message}</Notice> : null
  }
  return (
    <section className={waiting ? 'decide waiting' : 'decide'} aria-label={S.decision}>
      <div>
        <strong>{waiting ? S.mayI(e.requested_by ?? S.unknown, e.requested_by_agent, what, e.host) : e.message || S.states[e.phase]}</strong>
        {e.expires && <span className="countdown"><Icon name="stuck" />{waiting ? S.requestExpires : S.rollbackEnds} <span><Age at={e.expires} /> (<Moment at={e.expires} />)</span></span>}
        {replanned && <div role="alert"><Notice icon="warn" tone="warn" title={S.replanned}>{S.replannedHint}</Notice></div>}
        {refused.length > 0 && <p className="dim">{why ? S.notOffered(refused.map((v) => S.verbs[v]!).join(', '), why) : S.notAllowed}</p>}
        {host?.writes === false && relevant.map((v) => e.command?.[v] && <Command key={v} cmd={e.command[v]} />)}
      </div>
      <div className="buttons">{offered.map((v) => <Action key={`${v}${e.plan_hash}`} spec={specs[v]} />)}</div>
    </section>
  )
}

function Checks({ e }: { e: Execution }) {
  const row = (c: ConditionResult, what: string) => (
    <li key={what + c.type}><State of={c.evaluated === false ? 'pending' : c.passed ? 'Ready' : c.required ? 'Failed' : 'stuck'} label={`${c.type}: ${c.evaluated === false ? S.notYet : c.passed ? S.passed : S.notPassed}`} /><span className="dim">{what}{c.required ? '' : ` · ${S.optionalCheck}`}</span>{c.message && <span className="message">{c.message}</span>}</li>
  )
  const dry = e.dry_run_result
  return (
    <ul className="conditions">
      {e.checks && (['parameters', 'permissions', 'target'] as const).map((c) => <li key={c}><State of={e.checks?.[c] ? 'Ready' : 'Failed'} label={`${S.checkNames[c]}: ${e.checks?.[c] ? S.passed : S.notPassed}`} /></li>)}
      {dry?.performed && <li><State of={dry.success ? 'Ready' : 'Failed'} label={`${S.dryRun}: ${dry.success ? S.passed : S.notPassed}`} />{[...(dry.errors ?? []), ...(dry.warnings ?? [])].map((m) => <span key={m} className="message">{m}</span>)}</li>}
      {(e.pre_conditions ?? []).map((c) => row(c, S.before))}
      {(e.post_conditions ?? []).map((c) => row(c, S.after))}
      {!e.checks && !dry?.performed && (e.pre_conditions ?? []).length === 0 && <li className="dim">{S.noChecks}</li>}
    </ul>
  )
}

/** Audit lists the audit events of an execution. */
function Audit({ e }: { e: Execution }) {
  const connected = useHosts().find((h) => h.name === e.host)?.audit === true
  const query = useQuery({ ...auditQuery(e.host, e.namespace, e.name, e.phase), enabled: connected })
  return (
    <Panel title={S.audit} className="three">
      {connected
        ? (
          <Answer query={query} rows={4}>
            {({ items }) => items.length === 0 ? <p className="dim">{S.noAudit}</p> : (
              <div className="scroll" tabIndex={0} role="region" aria-label={S.audit}>
                <table>
                  <thead><tr><th>{S.time}</th><th>{S.event}</th><th>{S.actor}</th><th>{S.outcome}</th><th>{S.reason}</th></tr></thead>
                  <tbody>{items.map((a) => <tr key={a.position}><td><Moment at={a.at} /></td><td>{a.type.replaceAll('_', ' ')}</td><td>{a.actor}</td><td>{a.outcome}</td><td>{a.reason}</td></tr>)}</tbody>
                </table>
              </div>
            )}
          </Answer>
        )
        : e.command?.audit && <Command cmd={e.command.audit} />}
    </Panel>
  )
}

const KEEP = 200_000
const LOG_RETRY_MS = 2000

/** Log follows the log of the Job while the execution runs. */
function Log({ e }: { e: Execution }) {
  const started = ['executing', 'rollback_ready', ...ENDED].includes(e.phase) && e.job !== undefined
  const running = e.phase === 'executing'
  const [text, setText] = useState('')
  const [error, setError] = useState<unknown>()
  const [follow, setFollow] = useState(true)
  const box = useRef<HTMLPreElement>(null)
  const path = `${executionPath(e.host, e.namespace, e.name)}/log`
  useEffect(() => {
    if (!started) return
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    setText('')
    setError(undefined)
    const add = (piece: string) => {
      setError(undefined)
      setText((old) => (old + piece).slice(-KEEP))
    }
    const read = () => void readText(path, { follow: true }, add, abort.signal).catch((err: unknown) => {
      if (abort.signal.aborted) return
      setError(err)
      if (running) timer = setTimeout(read, LOG_RETRY_MS) // the Pod may not have started
    })
    read()
    return () => {
      abort.abort()
      clearTimeout(timer)
    }
  }, [path, started, running, e.job])
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight
  }, [text, follow])
  return (
    <Panel title={S.log} className="three" aside={started && <label className="inline"><input type="checkbox" checked={follow} onChange={(ev) => setFollow(ev.target.checked)} /> {S.follow}</label>}>
      {!started ? <p className="dim">{S.noLogYet}</p> : error && !e.log ? <><Failure error={error} />{e.command?.log && <Command cmd={e.command.log} />}</> : <pre ref={box} className="code log" tabIndex={0} aria-label={S.log}>{text || e.log || S.waitingForLog}</pre>}
    </Panel>
  )
}
