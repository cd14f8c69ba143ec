// Config: a form made from the schema. Changes are collected, checked, reviewed and written together; a file that was
// changed in between is not overwritten. Settings that cannot be changed from here show the reason.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { makeEdits } from "./config_edits.js";
import { savingBar } from "./config_saving.js";
import { fields, found } from "./config_tree.js";
import { count } from "./format.js";
import { notice, open, place, resync, settled } from "./kit.js";
import { input, select } from "./parts.js";

export const title = "Config";

const SHOWS = [
  ["", "all settings"],
  ["set", "set in the file"],
  ["changed", "changed here"],
];

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const lead = "All settings. Changes are checked before they are saved; comments in the file stay.";
  const view = open(root, params, title, lead);
  const host = place(view, "config");
  const ask = () => Promise.all([wire.call("config.get"), wire.call("config.schema")]);
  const load = () => host.load(ask, ([config, schema]) => editor(view, makeEdits(config, schema, new Map()), load));
  view.body.append(host.node);
  load();
  resync(view, () => {
    if (!host.node.querySelector(".has-changes")) load(); // unsaved changes stay
  });
  return view.close;
}

function editor(view, form, reload) {
  const { config } = form;
  const properties = form.read.root.properties;
  const sections = Object.keys(properties).filter((name) => name !== "agent" || config.parsed?.agent !== undefined);
  let section = sections.includes(view.asked("section")) ? view.asked("section") : sections[0];
  let filter = view.asked("show");
  const typed = () => {
    view.remember({ q: words.value.trim() });
    draw();
  };
  const words = input({
    type: "search",
    placeholder: "Search settings",
    "aria-label": "Search settings",
    value: view.asked("q"),
    on: { input: settled(view, typed, 150) },
  });
  const filtered = (value) => {
    filter = value;
    view.remember({ show: value });
    draw();
  };
  const shows = select(SHOWS, filter, filtered, { "aria-label": "Which settings" });
  const menu = el("nav", { class: "config-menu", "aria-label": "Sections" });
  const page = el("div", { class: "config-page" });

  function draw() {
    const query = words.value.trim().toLowerCase();
    const all = !query && !filter;
    menu.replaceChildren(...sections.map((name) => entry(name, all && name === section)));
    page.replaceChildren(...(all ? whole() : found(form, sections, query, filter)));
  }

  function entry(name, current) {
    const click = () => choose(name);
    const props = { type: "button", class: "tree-row", "aria-current": current ? "true" : null, on: { click } };
    return el("button", props, name);
  }

  function choose(name) {
    section = name;
    words.value = "";
    filter = "";
    shows.value = "";
    view.remember({ section, q: "", show: "" });
    draw();
  }

  function whole() {
    const node = properties[section];
    const reason = form.against([section]);
    const where = `Change it in ${config.path} or with pal config set.`;
    return [
      el("h2", {}, section),
      el("p", { class: "quiet" }, form.read.shape(node).description),
      ...(reason ? [notice(`This section cannot be changed from here: ${reason}. ${where}`)] : []),
      ...fields(form, [section], node, Boolean(reason)),
    ];
  }

  const takeUp = (fresh) => root.replaceWith(editor(view, makeEdits(fresh, form.schema, form.edits), reload));
  const bar = savingBar(form, { redraw: draw, reload, takeUp });
  draw();
  const root = el(
    "div",
    { class: "config-editor" },
    trouble(config),
    el("div", { class: "search" }, words, shows),
    el("p", { class: "quiet mono" }, config.path),
    remarks(config),
    el(
      "div",
      { class: "split split-left" },
      el("div", { class: "split-side" }, menu),
      el("div", { class: "split-main" }, page),
    ),
    bar,
  );
  return root;
}

function trouble(config) {
  if (config.valid) return null;
  const issues = config.issues.map((issue) => el("li", {}, issue.message));
  const said = el("p", {}, `${config.path} has errors and cannot be used:`);
  return el("div", { class: "notice notice-bad", role: "alert" }, said, el("ul", {}, issues));
}

function remarks(config) {
  if (!config.warnings?.length) return null;
  const lines = config.warnings.map((line) => el("li", {}, line));
  return el("details", {}, el("summary", {}, count(config.warnings.length, "remark")), el("ul", {}, lines));
}
