import './styles.css'
import { FleetError } from '@fleetloop/client'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { createRoot } from 'react-dom/client'
import { firstList } from './api/lists'
import { pageQuery, sessionQuery } from './api/queries'
import { router } from './router'
import { showTheme } from './ui/prefs'

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1000,
      // A server that refuses will refuse again; one that is away comes back.
      retry: (failures, error) => failures < 3 && !(error instanceof FleetError && error.status >= 400 && error.status < 500),
      refetchOnWindowFocus: true,
    },
  },
})

// A session that ended shows the sign-in form on the next request.
queries.getQueryCache().subscribe(({ query, type }) => {
  if (type !== 'updated' || query.queryKey[0] === 'session') return
  const { error, fetchStatus } = query.state
  if (fetchStatus === 'idle' && error instanceof FleetError && error.status === 401) void queries.invalidateQueries({ queryKey: ['session'] })
})

// The first script asked for these. They are read before the view is drawn, which then need not be drawn twice.
void queries.prefetchQuery(sessionQuery)
const list = firstList()
if (list) void queries.prefetchQuery(pageQuery(list.kind, list.filter, 1))

showTheme()
createRoot(document.getElementById('root')!).render(
  <QueryClientProvider client={queries}>
    <RouterProvider router={router} />
  </QueryClientProvider>,
)
