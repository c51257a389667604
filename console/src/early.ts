// The first script of the page. It asks for what the first view shows, and loads the code of the view,
// while the rest of the page still loads.
import { buildRequestUrl } from '@fleetloop/client/url'
import { firstList, pageRequest } from './api/lists'
import { buildUrl, requestEarly } from './api/requests'
import { BASE, viewPath } from './lib/base'

const list = firstList()
const path = viewPath()
requestEarly(buildUrl('console/session'))
if (list) {
  requestEarly(buildRequestUrl(BASE, ...pageRequest(list.kind, list.filter, 1)))
  void import('./views/List')
}
if (path === '/') void import('./views/Now')
if (path === '/' || path === '/clusters') requestEarly(buildRequestUrl(BASE, '/summary'))
void import('./main')
