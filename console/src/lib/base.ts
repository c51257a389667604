// The base path of the page. The console server writes it into index.html.

/** BASE is the address below which everything of the console is; it ends with a slash. */
export const BASE = new URL(document.querySelector<HTMLMetaElement>('meta[name="fleetloop-base"]')?.content ?? '/', location.origin).href
