// The first script of the page. It asks for what the first view shows, and loads the code of the view,
// while the rest of the page still loads.
import { FLEET, requestEarly } from './api/client'
import { firstList, pageRequest } from './api/lists'
import { viewPath } from './lib/base'

const list = firstList()
const path = viewPath()
requestEarly('console/session')
if (list) {
  requestEarly(...pageRequest(list.kind, list.filter, 1))
  void import('./views/List')
}
if (path === '/') void import('./views/Now')
if (path === '/' || path === '/clusters') requestEarly(`${FLEET}summary`)
void import('./main')
