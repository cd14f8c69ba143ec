// Start-up: the shell, the table of views, and which view is shown.

import { el, clear } from "./dom.js";
import { go, here, onRoute, sessionPath } from "./router.js";
import { agents, session, spot } from "./state.js";
import { wire } from "./wire.js";
import { shell } from "./shell.js";
import { home } from "./home.js";
import * as chat from "./chat/view.js";

/**
 * A view is a module with `title` and `mount(root, params) → unmount`. All but the chat are loaded when they are first
 * opened. `params`: `query` (URLSearchParams), `agent`, `session`, `compact` (in the drawer).
 */
export const PANELS = {
  "/memory": () => import("./panels/memory.js"),
  "/context": () => import("./panels/context.js"),
  "/files": () => import("./panels/files.js"),
  "/approvals": () => import("./panels/approvals.js"),
  "/usage": () => import("./panels/usage.js"),
  "/runs": () => import("./panels/runs.js"),
  "/subagents": () => import("./panels/subagents.js"),
  "/schedule": () => import("./panels/schedule.js"),
  "/channels": () => import("./panels/channels.js"),
  "/plugins": () => import("./panels/plugins.js"),
  "/logs": () => import("./panels/logs.js"),
  "/agents": () => import("./panels/agents.js"),
  "/config": () => import("./panels/config.js"),
  "/welcome": () => import("./panels/welcome.js"),
};

const SAID = /^sessions\/(?!notes-)[^/]+\.md$/;

let unmount = () => {};
let shown = ""; // the path of the mounted view
let visit = 0; // the latest navigation wins, however long a module takes to load

/** The agent of the current session; without a session, the default agent. */
function agentAtHand() {
  return session.value.split(":")[1] || agents.value.defaultId;
}

async function show(route) {
  const mine = ++visit;
  shell.bare = route.path === "/login";
  if (route.path === "/login") return mount(mine, route, () => import("./login.js"));
  wire.start();
  if (route.path === "/") return goHome();
  if (route.path.startsWith("/s/")) {
    session.value = route.path.slice(3);
    spot.value = { entry: route.params.get("at") ?? "" };
    return mount(mine, route, async () => chat);
  }
  if (route.path === "/files" && SAID.test(route.params.get("path") ?? "")) return toWhereItWasSaid(mine, route);
  const panel = PANELS[route.path];
  return panel ? mount(mine, route, panel) : nowhere(route.path);
}

async function mount(mine, route, load) {
  const place = route.path.startsWith("/s/") ? "/s" : route.path;
  // The chat follows the session by itself; other views are mounted again for a new query.
  if (place === "/s" && shown === "/s") return;
  const late = setTimeout(() => mine === visit && (leave(), clear(shell.place, skeleton())), 200);
  try {
    const module = await load();
    if (mine !== visit) return;
    unmount();
    unmount = () => {};
    shown = place;
    clear(shell.place);
    shell.title = module.title ?? "";
    clear(shell.actions);
    unmount =
      module.mount(shell.place, { query: route.params, agent: agentAtHand(), session: session.value }) ?? (() => {});
    shell.arrived(place, route.first);
  } catch (error) {
    if (mine === visit) failed(error);
  } finally {
    clearTimeout(late);
  }
}

/** Unmount the current view, so that the next one is mounted anew, also when going back before it has loaded. */
function leave() {
  unmount();
  unmount = () => {};
  shown = "";
}

function failed(error) {
  console.error(error);
  leave();
  const again = el(
    "button",
    { class: "button", type: "button", on: { click: () => location.reload() } },
    "Reload",
  );
  clear(
    shell.place,
    el(
      "div",
      { class: "empty", role: "alert" },
      el("p", null, "This view could not be opened. "),
      el("p", { class: "mono" }, error.message),
      el("p", null, again),
    ),
  );
}

function nowhere(path) {
  unmount();
  unmount = () => {};
  shown = path;
  shell.title = "Not found";
  clear(shell.actions);
  clear(
    shell.place,
    el("p", { class: "empty" }, "There is nothing at this address. ", el("a", { href: "/" }, "Back to the chat")),
  );
}

function skeleton() {
  return el(
    "div",
    { class: "place-skeleton", "aria-hidden": "true" },
    [60, 90, 75].map((width) => el("div", { class: "skeleton", style: { width: `${width}%` } })),
  );
}

/** A session can be cited like a file: the citation means the message on that line. */
async function toWhereItWasSaid(mine, { params }) {
  const asked = { path: params.get("path"), line: Number(params.get("line")) || 1, agent: params.get("agent") ?? "" };
  try {
    const said = await wire.call("memory.said", asked, { reads: true });
    if (mine === visit) go(sessionPath(said.sessionKey, said.entryId), { replace: true });
  } catch (error) {
    if (mine === visit) failed(error);
  }
}

/** Home is the main session of the default agent. It waits until the agents are known. */
function goHome() {
  const off = agents.subscribe((known) => {
    if (!known.agents.length) return;
    queueMicrotask(() => off());
    if (here().path === "/") go(sessionPath(`agent:${known.defaultId}:main`), { replace: true });
  });
}

wire.on("state", (state) => state === "unauthorised" && here().path !== "/login" && go("/login"));
shell.mount(document.getElementById("app") ?? document.body);
home.start();
onRoute(show);
