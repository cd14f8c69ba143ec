// Addresses. Every view has one, back works, and links are real links.

const listeners = new Set();

/**
 * @typedef {{path: string, params: URLSearchParams, first: boolean}} Route `path` is decoded; `first`: the dashboard was
 *   opened here.
 */

/** @returns {Route} the current address */
export function here(first = false) {
  return { path: decoded(location.pathname), params: new URLSearchParams(location.search), first };
}

/**
 * Go to an address of the dashboard.
 *
 * @param {string} path such as `/memory?q=tides`
 * @param {{replace?: boolean}} [how] replace: without a new history entry
 */
export function go(path, { replace = false } = {}) {
  if (path === location.pathname + location.search) replace = true;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  tell();
}

/** Call `fn` with the current address, and again whenever it changes. Returns a function that stops this. */
export function onRoute(fn) {
  listeners.add(fn);
  fn(here(true));
  return () => listeners.delete(fn);
}

/** The address of a session, or of a message in it. Colons are allowed in a path and stay unescaped. */
export function sessionPath(key, entry = "") {
  const path = `/s/${encodeURIComponent(key).replaceAll("%3A", ":")}`;
  return entry ? `${path}?at=${encodeURIComponent(entry)}` : path;
}

function tell() {
  const route = here();
  for (const listener of [...listeners]) listener(route);
}

function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path; // a percent sign that is no escape
  }
}

addEventListener("popstate", tell);
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey)
    return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!link || link.target || link.hasAttribute("download")) return;
  const to = new URL(link.href, location.href);
  if (to.origin !== location.origin || to.pathname.startsWith("/page/")) return;
  event.preventDefault();
  go(to.pathname + to.search);
});
