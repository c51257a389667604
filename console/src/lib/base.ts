// The base path of the page. The console server writes it into index.html.

/** BASE is the address below which everything of the console is; it ends with a slash. */
export const BASE = new URL(document.querySelector<HTMLMetaElement>('meta[name="fleetloop-base"]')?.content ?? '/', location.origin).href

const PATH = new URL(BASE).pathname

/** hostPath returns the path on this host of a path of the page. */
export const hostPath = (path: string): string => PATH.slice(0, -1) + path

/** viewPath returns the path of the page that is shown, without the base path and the parameters. */
export const viewPath = (): string => location.pathname.slice(PATH.length - 1)

/** currentPath returns the path of the page that is shown, without the base path. */
export const currentPath = (): string => viewPath() + location.search
