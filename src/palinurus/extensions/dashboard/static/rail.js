// The left rail: agents, their sessions by day, and the other views.

import { el, icon, mark, clear } from "./dom.js";
import { openMenu } from "./dialog.js";
import { dayName } from "./format.js";
import { sessionActions, newSession } from "./session_actions.js";
import { searchSaid, sessionTitle } from "./home.js";
import { onRoute, sessionPath } from "./router.js";
import { agents, session, sessions, waiting } from "./state.js";

export const PLACES = [
  { path: "/memory", label: "Memory", icon: "memory" },
  { path: "/files", label: "Files", icon: "files" },
  { path: "/approvals", label: "Approvals", icon: "approve" },
  { path: "/context", label: "Context", icon: "context" },
  { path: "/usage", label: "Usage", icon: "usage" },
  { path: "/runs", label: "Runs", icon: "runs" },
  { path: "/subagents", label: "Subagents", icon: "subagent" },
  { path: "/schedule", label: "Schedule", icon: "clock" },
  { path: "/channels", label: "Channels", icon: "link" },
  { path: "/plugins", label: "Plugins", icon: "tool" },
  { path: "/logs", label: "Logs", icon: "logs" },
  { path: "/agents", label: "Agents", icon: "agent" },
  { path: "/config", label: "Config", icon: "config" },
];
const SEARCH_AFTER = 200; // milliseconds without typing

/** @returns {HTMLElement} */
export function makeRail() {
  const field = el("input", {
    class: "field",
    type: "search",
    placeholder: "Search sessions",
    "aria-label": "Search sessions",
  });
  const people = el("ul", { class: "rail-agents", "aria-label": "Agents" });
  const list = el("div", { class: "rail-sessions" });
  const rows = new Map(); // session key → its row, reused so that focus and hover survive
  let said = null; // messages that match the search
  let timer = 0;

  const begin = el(
    "button",
    {
      class: "button-icon",
      type: "button",
      title: "New session",
      "aria-label": "New session",
      on: { click: () => newSession() },
    },
    icon("plus"),
  );
  const head = el("div", { class: "rail-head" }, el("a", { class: "brand", href: "/" }, mark(), "Palinurus"), begin);

  function draw() {
    const words = field.value.trim().toLowerCase();
    const agent = session.value.split(":")[1] || agents.value.defaultId;
    const known = sessions.value;
    const held = list.contains(document.activeElement) ? document.activeElement : null;
    if (known === null) return clear(list, el("div", { class: "skeleton" }), el("div", { class: "skeleton" }));
    const many = agents.value.agents.length > 1;
    const wanted = known.filter(
      (each) =>
        (words || !many || each.agentId === agent) &&
        (!words || `${sessionTitle(each)} ${each.key}`.toLowerCase().includes(words)),
    );
    clear(list, groups(wanted), words ? heard() : null);
    if (!wanted.length && !said?.length)
      list.append(
        el("p", { class: "rail-empty quiet" }, words ? "Nothing found." : "Your sessions will appear here."),
      );
    if (held?.isConnected) held.focus();
  }

  function groups(wanted) {
    const byDay = Map.groupBy ? Map.groupBy(wanted, (each) => dayName(each.updatedAt)) : grouped(wanted);
    return [...byDay].map(([name, some]) =>
      el("section", { "aria-label": name }, el("h2", { class: "rail-day" }, name), el("ul", null, some.map(rowOf))),
    );
  }

  function rowOf(each) {
    const row = rows.get(each.key) ?? makeRow(each.key);
    rows.set(each.key, row);
    row.update(each);
    return row.node;
  }

  function heard() {
    if (!said?.length) return null;
    const hits = said.map((hit) =>
      el(
        "li",
        null,
        el(
          "a",
          { class: "rail-hit", href: sessionPath(hit.key, hit.entry) },
          el("span", { class: "rail-title" }, hit.title),
          el("span", { class: "quiet rail-snippet" }, hit.text),
        ),
      ),
    );
    return el(
      "section",
      { "aria-label": "Messages" },
      el("h2", { class: "rail-day" }, "Messages"),
      el("ul", null, hits),
    );
  }

  async function search() {
    const query = field.value.trim();
    if (query.length < 3) return (said = null);
    try {
      const found = await searchSaid(query, 12);
      if (field.value.trim() !== query) return;
      said = found;
    } catch {
      said = null; // titles are still searched
    }
    draw();
  }

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, SEARCH_AFTER);
    draw();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && field.value) (event.stopPropagation(), (field.value = ""), (said = null), draw());
    if (event.key === "Enter" || event.key === "ArrowDown")
      (event.preventDefault(), list.querySelector("a")?.[event.key === "Enter" ? "click" : "focus"]());
  });
  list.addEventListener("keydown", walk);
  sessions.subscribe(draw);
  session.subscribe(draw);
  waiting.subscribe(draw);
  agents.subscribe(() => (drawAgents(people), draw()));
  session.subscribe(() => drawAgents(people));
  return el(
    "nav",
    { class: "rail", "aria-label": "Agents and sessions" },
    head,
    el("div", { class: "rail-search" }, field),
    people,
    list,
    places(),
  );
}

/** The agent's picture, its emoji, or the default icon. */
function agentSign(agent) {
  if (agent.picture) return el("img", { src: agent.picture, alt: "", width: 18, height: 18 });
  return agent.identity?.emoji || icon("agent");
}

function drawAgents(people) {
  const known = agents.value.agents;
  people.hidden = known.length < 2;
  const at = session.value.split(":")[1];
  clear(
    people,
    known.map((each) => {
      const name = each.identity?.name || each.name || each.id;
      return el(
        "li",
        null,
        el(
          "a",
          { href: sessionPath(`agent:${each.id}:main`), "aria-current": each.id === at ? "true" : null },
          el("span", { class: "rail-emoji", "aria-hidden": "true" }, agentSign(each)),
          name,
        ),
      );
    }),
  );
}

/** One session: the row is changed rather than made again. */
function makeRow(key) {
  const title = el("span", { class: "rail-title" });
  const dot = el("span", { class: "rail-dot", "aria-hidden": "true" });
  const spoken = el("span", { class: "visually-hidden" });
  const from = el("span", { class: "rail-from quiet" });
  const link = el("a", { class: "rail-row", href: sessionPath(key) }, dot, title, from, spoken);
  const more = el(
    "button",
    { class: "button-icon rail-more", type: "button", "aria-haspopup": "menu", "aria-expanded": "false" },
    icon("more"),
  );
  more.addEventListener("click", () => openMenu(more, sessionActions(key), { label: "Session" }));
  link.addEventListener(
    "contextmenu",
    (event) => (event.preventDefault(), openMenu(more, sessionActions(key), { label: "Session" })),
  );
  return {
    node: el("li", { class: "rail-item" }, link, more),
    update(row) {
      const asks = waiting.value.some((each) => each.request.sessionKey === key);
      title.textContent = sessionTitle(row);
      from.textContent = whence(row, title.textContent);
      link.title = title.textContent;
      dot.className = `rail-dot${asks ? " asks" : row.hasActiveRun ? " runs" : ""}`;
      spoken.textContent = asks ? ", waiting for your approval" : row.hasActiveRun ? ", running" : "";
      more.setAttribute("aria-label", `Actions for ${title.textContent}`);
      session.value === key ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    },
  };
}

/** The channel of a chat and who writes there, if the title does not say so already. */
function whence({ channel, lastChannel, peerName }, title) {
  const name = title.startsWith(peerName ?? "") ? "" : peerName;
  return [channel || (peerName && lastChannel), name].filter(Boolean).join(" · ");
}

function places() {
  const links = PLACES.map((place) =>
    el("a", { class: "rail-place", href: place.path }, icon(place.icon), place.label),
  );
  onRoute(({ path }) => {
    for (const link of links)
      link.getAttribute("href") === path
        ? link.setAttribute("aria-current", "page")
        : link.removeAttribute("aria-current");
  });
  waiting.subscribe((some) => {
    const link = links[PLACES.findIndex((place) => place.path === "/approvals")];
    link.querySelector(".chip")?.remove();
    if (some.length)
      link.append(
        el("span", { class: "chip chip-coral", "aria-label": `${some.length} waiting` }, String(some.length)),
      );
  });
  return el("div", { class: "rail-places" }, links);
}

/** Up and down move through the sessions. */
function walk(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const links = [...event.currentTarget.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement?.closest(".rail-item")?.querySelector("a") ?? document.activeElement);
  event.preventDefault();
  links[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
}

function grouped(rows) {
  const found = new Map();
  for (const row of rows) found.set(dayName(row.updatedAt), [...(found.get(dayName(row.updatedAt)) ?? []), row]);
  return found;
}
