// Files: the workspace of an agent, each file at the wanted line, its history, and restoring earlier versions.

import { el, icon } from "../dom.js";
import { wire } from "../wire.js";
import { fileView } from "./editor.js";
import { bytes, when } from "./format.js";
import { history } from "./history.js";
import { empty, open, place, resync } from "./kit.js";
import { button, chip } from "./parts.js";
import { listOwn } from "./reading.js";

export const title = "Files";

const ABOUT = {
  "AGENTS.md": "how the agent works",
  "SOUL.md": "personality",
  "IDENTITY.md": "name and picture",
  "USER.md": "about you",
  "TOOLS.md": "notes on tools",
  "BOOTSTRAP.md": "first session",
  "MEMORY.md": "long-term memory",
  "HEARTBEAT.md": "regular tasks",
};

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "The agent's workspace. The agent reads your changes with the next message.");
  const opened = el("div", { class: "opened" });
  const tree = place(view, "tree");
  const split = el(
    "div",
    { class: "split split-left" },
    el("div", { class: "split-side" }, tree.node),
    el("div", { class: "split-main" }, opened),
  );
  let path = view.asked("path").replace(/#L\d+(-L?\d+)?$/, "");
  let folder = path.includes("/") && !path.startsWith("memory/") ? path.slice(0, path.lastIndexOf("/")) : "";

  const load = () =>
    tree.load(
      () => Promise.all([listOwn(view.agent), listFolder(folder)]),
      ([own, listed]) => draw(own, listed),
    );

  /** When a folder is missing, as from an old link, show the rest. */
  async function listFolder(at) {
    const list = (path) => wire.call("workspace.list", { agentId: view.agent, path });
    try {
      return await list(at || ".");
    } catch {
      folder = "";
      return list(".");
    }
  }

  function draw(own, listed) {
    const notes = own.files.filter((file) => file.name.startsWith("memory/")).reverse();
    const known = new Set(own.files.map((file) => file.name));
    const rest = (listed?.entries ?? []).filter(
      (entry) => !known.has(entry.path) && entry.path !== "memory" && entry.name !== ".git",
    );
    return el(
      "nav",
      { "aria-label": "Files" },
      group(
        "Agent files",
        own.files
          .filter((file) => !file.name.startsWith("memory/"))
          .map((file) => row(file.name, file.name, ABOUT[file.name], file)),
      ),
      group(
        "Notes",
        notes.length
          ? notes.map((file) => row(file.name, file.name.slice(7), "", file))
          : [el("li", { class: "quiet" }, "None yet. Ask your agent to remember something.")],
      ),
      listed
        ? group(folder ? `Workspace / ${folder}` : "Workspace", [folder ? up() : null, ...rest.map(entryRow)])
        : null,
      listed?.more ? el("p", { class: "quiet" }, "Not all files are listed.") : null,
    );
  }

  const group = (name, rows) => el("section", { class: "tree-group" }, el("h2", {}, name), el("ul", {}, rows));
  const up = () =>
    el(
      "li",
      {},
      button("..", () => enter(folder.includes("/") ? folder.slice(0, folder.lastIndexOf("/")) : ""), "quiet", {
        "aria-label": "Up one folder",
        class: "tree-row",
      }),
    );
  function entryRow(entry) {
    if (!entry.isDirectory) return row(entry.path, entry.name, bytes(entry.size), entry);
    return el(
      "li",
      {},
      el(
        "button",
        { type: "button", class: "tree-row", on: { click: () => enter(entry.path) } },
        icon("files"),
        el("span", {}, entry.name),
      ),
    );
  }

  function row(name, words, about, file) {
    const address = new URLSearchParams({ path: name, ...(view.agent ? { agent: view.agent } : {}) });
    const link = el(
      "a",
      {
        class: file.missing ? "tree-row missing" : "tree-row",
        href: `/files?${address}`,
        "aria-current": name === path ? "true" : null,
        on: { click: (event) => choose(event, name) },
      },
      icon("file"),
      el("span", { class: "tree-name" }, words),
      el(
        "small",
        { class: "quiet" },
        file.missing ? "not created yet" : about || (file.updatedAtMs ? when(file.updatedAtMs) : ""),
      ),
    );
    return el("li", {}, link);
  }

  function choose(event, name) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(name);
    for (const link of tree.node.querySelectorAll("[aria-current]")) link.removeAttribute("aria-current");
    event.currentTarget.setAttribute("aria-current", "true");
  }

  function enter(to) {
    folder = to;
    load();
  }

  function show(name, line = 0, to = 0) {
    path = name;
    split.classList.add("has-open");
    view.remember({ path: name, line: line || "", to: to && to !== line ? to : "" });
    const past = el("div", { class: "past" });
    const file = fileView(view, {
      agent: view.agent,
      path: name,
      line,
      to,
      onSaved: () => {
        load();
        drawPast();
      },
    });
    const drawPast = () =>
      past.replaceChildren(
        history(view, {
          path: name,
          onRestored: () => {
            file.reload();
            load();
          },
        }),
      );
    drawPast();
    opened.replaceChildren(el("section", { class: "card", "aria-label": `File ${name}` }, file.node), past);
  }

  function start() {
    const lines = /#L(\d+)(?:-L?(\d+))?$/.exec(view.asked("path"));
    const line = Number(view.asked("line")) || Number(lines?.[1]) || 0;
    if (path) return show(path, line, Number(view.asked("to")) || Number(lines?.[2]) || line);
    opened.replaceChildren(
      el(
        "div",
        { class: "card" },
        empty(
          "Choose a file.",
          "SOUL.md describes the agent's personality. Change a line and the next reply follows it.",
          button("Open SOUL.md", () => show("SOUL.md"), ""),
        ),
      ),
      el("div", { class: "past" }, history(view, { path: "", onRestored: load })),
    );
  }

  if (view.agent) view.tools.append(chip(`agent ${view.agent}`));
  view.body.append(split);
  start();
  load();
  resync(view, load);
  return view.close;
}
