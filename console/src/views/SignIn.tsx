import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { write } from '../api/client'
import { buildUrl } from '../api/requests'
import { sessionQuery } from '../api/queries'
import { hostPath } from '../lib/base'
import { localPath } from '../lib/search'
import { S } from '../strings'
import { Failure, Notice } from '../ui/basics'
import { useParamsInUrl } from '../ui/hooks'
import { Icon } from '../ui/icons'

export function SignIn() {
  const [params] = useParamsInUrl()
  const session = useQuery(sessionQuery)
  const [token, setToken] = useState('')
  const to = hostPath(localPath(params.to))
  const signIn = useMutation({
    mutationFn: ([path, body]: [string, object]) => write('POST', path, body),
    onSuccess: () => {
      setToken('')
      location.assign(to)
    },
  })
  const mode = session.data?.mode
  const demo = session.data?.demo_users ?? []
  return (
    <div className="signin">
      <svg className="logo" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M9 16a7 7 0 0 1 12.5-4.3M23 16a7 7 0 0 1-12.5 4.3M22.4 7.6v4.9h-4.9M9.6 24.4v-4.9h4.9" /></svg>
      <h1>{S.signInTo}</h1>
      {mode === 'oidc' && <a className="button primary" href={buildUrl('console/login', { to })}>{S.signInOidc}</a>}
      {mode === 'token' && (
        <form onSubmit={(e) => {
          e.preventDefault()
          signIn.mutate(['console/token', { token }])
        }}>
          <label className="field"><span>{S.token}</span><input type="password" autoComplete="off" required value={token} onChange={(e) => setToken(e.target.value)} /></label>
          <p className="dim">{S.tokenHint}</p>
          <button type="submit" className="button primary" disabled={signIn.isPending || !token}>{signIn.isPending ? S.waitingForServer : S.signIn}</button>
        </form>
      )}
      {demo.length > 0 && (
        <>
          <h2>{S.demoPeople}</h2>
          <ul className="people">
            {demo.map((p) => (
              <li key={p.name}>
                <button type="button" disabled={signIn.isPending} onClick={() => signIn.mutate(['console/demo', { user: p.name }])}>
                  <span className="avatar" aria-hidden="true">{p.name.slice(0, 1).toUpperCase()}</span><span><b>{p.name}</b><span className="dim">{S.roles[p.role] ?? p.role}</span></span>
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
      {mode === 'none' && demo.length === 0 && <p className="state ok"><Icon name="ok" />{S.noSignIn}</p>}
      {params.failed && <Notice icon="warn" tone="bad" title={S.signInFailed}>{S.signInErrors[params.failed] ?? S.signInAgain}</Notice>}
      {signIn.error && <Failure error={signIn.error} />}
    </div>
  )
}
