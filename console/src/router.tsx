import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from '@tanstack/react-router'
import { BASE } from './lib/base'
import { formatParams, parseParams, type Params } from './lib/search'
import { Head } from './shell/head'
import { Root } from './shell/Root'
import { S } from './strings'
import { Failure } from './ui/basics'

const root = createRootRoute({
  component: Root,
  validateSearch: (search) => search as Params,
  notFoundComponent: () => <Head title={S.noPage} hint={S.noPageHint} />,
  errorComponent: ({ error }) => <Failure error={error} />,
})

const at = <P extends string>(path: P, load: Parameters<typeof lazyRouteComponent>[0], name: string) =>
  createRoute({ getParentRoute: () => root, path, component: lazyRouteComponent(load, name as never) })

const resource = () => import('./views/Resource')
const list = () => import('./views/List')

export const router = createRouter({
  routeTree: root.addChildren([
    at('/', () => import('./views/Now'), 'Now'),
    at('/clusters', list, 'Clusters'),
    at('/nodepools', list, 'NodePools'),
    at('/clusters/$id', resource, 'Cluster'),
    at('/nodepools/$id', resource, 'NodePool'),
    at('/stuck', () => import('./views/Stuck'), 'Stuck'),
    at('/timeline', () => import('./views/Timeline'), 'Timeline'),
    at('/executions', () => import('./views/Executions'), 'Executions'),
    at('/executions/$host/$ns/$name', () => import('./views/Execution'), 'ExecutionView'),
    at('/nodes', () => import('./views/Nodes'), 'Nodes'),
    at('/coverage', () => import('./views/Coverage'), 'Coverage'),
    at('/signin', () => import('./views/SignIn'), 'SignIn'),
  ]),
  basepath: new URL(BASE).pathname,
  parseSearch: parseParams,
  stringifySearch: formatParams,
  defaultPreload: 'intent',
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
