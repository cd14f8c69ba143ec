// Ctrl-K: everything by its name. Views add their commands (`addCommands`); sessions and views are always listed.

import { el, icon, clear } from "./dom.js";
import { newSession } from "./session_actions.js";
import { caretBack } from "./dialog.js";
import { searchSaid, sessionTitle } from "./home.js";
import { PLACES } from "./rail.js";
import { go, sessionPath } from "./router.js";
import { agents, sessions } from "./state.js";

const MOST = 60;
const SAID = 6; // results from messages
const SEARCH_AFTER = 200; // milliseconds without typing
const sources = new Set();
let open = null;

/**
 * @typedef {{label: string, group?: string, icon?: string, side?: string, run: () => void}} Command
 * @param {() => Command[]} source called whenever the palette opens
 * @returns {() => void} removes them again
 */
export function addCommands(source) {
  sources.add(source);
  return () => sources.delete(source);
}

function all() {
  const own = [...sources].flatMap((source) => source());
  const places = [...PLACES, { path: "/welcome", label: "Models and keys", icon: "agent" }].map((place) => ({
    label: place.label,
    group: "Go to",
    icon: place.icon,
    run: () => go(place.path),
  }));
  const people = agents.value.agents.map((each) => ({
    label: `Talk with ${each.identity?.name || each.name}`,
    group: "Agents",
    icon: "agent",
    side: each.id,
    run: () => go(sessionPath(`agent:${each.id}:main`)),
  }));
  const rows = (sessions.value ?? []).map((row) => ({
    label: sessionTitle(row),
    group: "Sessions",
    icon: "chat",
    side: row.agentId,
    run: () => go(sessionPath(row.key)),
  }));
  return [
    { label: "New session", group: "Dashboard", icon: "plus", run: () => newSession() },
    ...own,
    ...places,
    ...(people.length > 1 ? people : []),
    ...rows,
  ];
}

/** How well the query matches: all letters in their order; starts of words count more. -1: no match. */
export function fit(words, label) {
  const text = label.toLowerCase();
  const whole = text.indexOf(words);
  if (whole >= 0) return 1_000 - whole - text.length / 100 + (whole === 0 || text[whole - 1] === " " ? 500 : 0);
  let at = -1;
  let score = 0;
  for (const letter of words.replaceAll(" ", "")) {
    const next = text.indexOf(letter, at + 1);
    if (next < 0) return -1;
    score += next === at + 1 ? 3 : next === 0 || text[next - 1] === " " ? 2 : 0;
    at = next;
  }
  return score >= words.length ? score : -1; // scattered letters are no match
}

/** Not when the list has moved below a pointer that did not move. */
const moved = (event) => event.movementX !== 0 || event.movementY !== 0;

function matching(words, commands, said) {
  if (!words) return commands.slice(0, MOST);
  const scored = commands.map((command) => ({ command, score: fit(words, command.label) }));
  const found = scored.filter((each) => each.score >= 0).sort((one, other) => other.score - one.score);
  return [
    ...found.slice(0, MOST).map((each) => each.command),
    ...said,
    {
      label: `Search memory for “${words}”`,
      group: "Search",
      icon: "memory",
      run: () => go(`/memory?q=${encodeURIComponent(words)}`),
    },
  ];
}

/** Open the palette, or close it when it is open. */
export function openPalette() {
  if (open?.open) return open.close();
  const commands = all();
  let found = [];
  let said = []; // messages that match the query
  let timer = 0;
  let at = 0;
  const field = el("input", {
    class: "palette-field",
    placeholder: "Search or run a command…",
    role: "combobox",
    "aria-expanded": "true",
    "aria-controls": "palette-list",
    "aria-autocomplete": "list",
    "aria-label": "Command",
    spellcheck: false,
    autocomplete: "off",
  });
  const list = el("div", { class: "palette-list", id: "palette-list", role: "listbox", "aria-label": "Commands" });
  const box = el("dialog", { class: "palette", "aria-label": "Command palette" }, field, list);
  open = box;

  function draw() {
    found = matching(field.value.trim().toLowerCase(), commands, said);
    let group = "";
    clear(
      list,
      found.map((command, index) => {
        const heading =
          !field.value && command.group !== group
            ? el("div", { class: "menu-heading", role: "presentation" }, (group = command.group ?? ""))
            : null;
        const side = command.side ?? (field.value ? command.group : "");
        const row = el(
          "div",
          {
            class: "menu-item",
            role: "option",
            id: `palette-${index}`,
            on: { click: () => choose(index), pointermove: (event) => moved(event) && at !== index && point(index) },
          },
          icon(command.icon ?? "command"),
          el("span", { class: "palette-label" }, command.label),
          side ? el("span", { class: "menu-item-side" }, side) : null,
        );
        return [heading, row];
      }),
    );
    point(0);
  }

  /** Messages are listed after names; the selected item stays selected. */
  async function search() {
    const query = field.value.trim();
    if (query.length < 3) return;
    const hits = await searchSaid(query, SAID).catch(() => []);
    if (open !== box || field.value.trim() !== query || !hits.length) return;
    const chosen = found[at];
    said = hits.map((hit) => ({
      label: hit.text,
      group: "Messages",
      icon: "chat",
      side: hit.title,
      run: () => go(sessionPath(hit.key, hit.entry)),
    }));
    draw();
    point(Math.max(0, at ? found.findIndex((each) => each.label === chosen?.label) : 0));
  }

  function point(index) {
    list.querySelector('[aria-selected="true"]')?.setAttribute("aria-selected", "false");
    at = (index + found.length) % found.length;
    const row = document.getElementById(`palette-${at}`);
    row?.setAttribute("aria-selected", "true");
    row?.scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", `palette-${at}`);
  }

  function choose(index) {
    box.close();
    found[index]?.run();
  }

  field.addEventListener("input", () => {
    said = [];
    at = 0;
    draw();
    clearTimeout(timer);
    timer = setTimeout(search, SEARCH_AFTER);
  });
  box.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") box.close();
    else if (event.key === "ArrowDown") point(at + 1);
    else if (event.key === "ArrowUp") point(at - 1);
    else if (event.key === "Enter") choose(at);
    else return;
    event.preventDefault();
  });
  box.addEventListener("click", (event) => event.target === box && box.close());
  box.addEventListener("close", () => {
    if (open === box) open = null; // another one may be open by now
    box.remove();
    caretBack();
  });
  document.body.append(box);
  draw();
  box.showModal();
  field.focus();
}
