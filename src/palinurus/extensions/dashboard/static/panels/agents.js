// Agents: who lives in this home, who they are, which model each uses; add one from a template, make one the default.

import { clear, el } from "../dom.js";
import { complain, confirm, notify } from "../dialog.js";
import { home } from "../home.js";
import { sessionPath } from "../router.js";
import { agents } from "../state.js";
import { wire } from "../wire.js";
import { failure, open, place, resync } from "./kit.js";
import { button, chip, field, input, select, worker } from "./parts.js";

export const title = "Agents";

const TEMPLATES = [
  ["assistant", "Assistant"],
  ["coder", "Coder: tools for code"],
  ["researcher", "Researcher: no commands, no messages"],
  ["home", "Home: no commands"],
];
const TRAITS = ["emoji", "creature", "vibe", "theme"];

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "Each agent has its own workspace, keys, memory and sessions.");
  const list = place(view, "choices");
  const foot = el("div", { class: "filled" });

  async function ask() {
    await home.refreshAgents();
    return agents.value;
  }
  function draw(known) {
    const mayChange = wire.scopes.has("admin"); // known once something was answered
    if (mayChange && !foot.hasChildNodes()) foot.append(adder(load));
    return known.agents.map((each) => card(each, each.id === known.defaultId, mayChange, load));
  }
  const load = () => list.load(ask, draw);
  view.body.append(list.node, foot);
  resync(view, load);
  load();
  return view.close;
}

function card(agent, isDefault, mayChange, again) {
  const name = agent.identity?.name || agent.name;
  const heading = `agent-${agent.id}`;
  const form = el("div", { class: "filled", hidden: true });
  const toggle = button("Edit", () => {
    form.hidden = !form.hidden;
    toggle.setAttribute("aria-expanded", String(!form.hidden));
    if (!form.hidden) form.querySelector("input")?.focus();
  });
  toggle.setAttribute("aria-expanded", "false");
  form.append(editor(agent, again));
  return el(
    "section",
    { class: "card", "aria-labelledby": heading },
    el(
      "div",
      { class: "card-head" },
      el("h2", { id: heading }, `${agent.identity?.emoji ?? ""} ${name}`.trim()),
      el("div", { class: "flow" }, isDefault ? chip("Default", "accent") : null, el("code", {}, agent.id)),
    ),
    el("p", { class: "quiet" }, traits(agent) || "No traits yet."),
    el("p", {}, "Model: ", agent.model?.primary || "chosen automatically"),
    el("p", { class: "quiet" }, el("code", { class: "clip" }, agent.workspace)),
    agent.bindings?.length ? el("p", {}, "Answers at: ", agent.bindings.map((each) => chip(each))) : null,
    el(
      "div",
      { class: "flow" },
      el("a", { class: "button", href: sessionPath(`agent:${agent.id}:main`) }, "Chat"),
      mayChange ? toggle : null,
      mayChange && !isDefault ? worker("Make default", () => makeDefault(agent, again)) : null,
      mayChange && !isDefault ? worker("Remove", () => remove(agent, name, again)) : null,
    ),
    mayChange ? form : null,
  );
}

function traits(agent) {
  const said = ["creature", "vibe", "theme"].map((trait) => agent.identity?.[trait]).filter(Boolean);
  return said.join(" · ");
}

async function makeDefault(agent, again) {
  await shown(wire.call("agents.update", { agentId: agent.id, default: true }));
  return again();
}

async function remove(agent, name, again) {
  const text = `Its workspace, keys and sessions stay on this machine. Only its settings${agent.bindings?.length ? " and bindings" : ""} go.`;
  if (!(await confirm({ title: `Remove ${name}?`, text, yes: "Remove", danger: true }))) return;
  await shown(wire.call("agents.delete", { agentId: agent.id }));
  await again();
}

/** Who the agent is and which model it uses. A field that was not changed is not sent. */
function editor(agent, again) {
  const before = { name: agent.identity?.name ?? "", model: agent.model?.primary ?? "" };
  for (const trait of TRAITS) before[trait] = agent.identity?.[trait] ?? "";
  const fields = Object.fromEntries(
    ["name", ...TRAITS, "model"].map((each) => [each, input({ value: before[each], maxLength: 200 })]),
  );
  const told = el("div", { "aria-live": "polite" });

  async function save() {
    const changed = Object.keys(fields).filter((each) => fields[each].value.trim() !== before[each]);
    const said = Object.fromEntries(changed.map((each) => [each, fields[each].value.trim()]));
    try {
      const { model, ...identity } = said;
      if (model !== undefined) await wire.call("agents.update", { agentId: agent.id, model: model || null });
      if (Object.keys(identity).length) await wire.call("agents.identity.set", { agentId: agent.id, ...identity });
      notify("Saved.");
      await again();
    } catch (error) {
      clear(told, failure(error));
    }
  }
  const labels = { name: "Name", emoji: "Emoji", creature: "Creature", vibe: "Vibe", theme: "Theme", model: "Model" };
  return el(
    "div",
    { class: "filled" },
    el("div", { class: "fields" }, Object.keys(fields).map((each) => field(labels[each], fields[each]))),
    el("div", { class: "flow" }, worker("Save", save, "")),
    told,
  );
}

function adder(again) {
  let template = "assistant";
  const name = input({ maxLength: 80, placeholder: "Work", on: { keydown: (event) => event.key === "Enter" && add.click() } });
  const emoji = input({ maxLength: 16 });
  const model = input({ maxLength: 200, placeholder: "provider/model" });
  const chooser = select(TEMPLATES, template, (value) => (template = value));
  const told = el("div", { "aria-live": "polite" });

  async function make() {
    const wanted = { name: name.value.trim(), emoji: emoji.value.trim(), model: model.value.trim(), template };
    if (!wanted.name) return name.focus();
    try {
      const made = await wire.call("agents.create", wanted);
      for (const each of [name, emoji, model]) each.value = "";
      clear(told, el("p", { role: "status" }, `${made.name} lives in `, el("code", {}, made.workspace)));
      await again();
    } catch (error) {
      clear(told, failure(error));
    }
    return undefined;
  }
  const add = worker("Add agent", make, "");
  return el(
    "section",
    { class: "card", "aria-labelledby": "add-agent" },
    el("h2", { id: "add-agent" }, "Add an agent"),
    el(
      "div",
      { class: "fields" },
      field("Name", name),
      field("Template", chooser, "What its files say and which tools it has."),
      field("Emoji", emoji),
      field("Model", model, "Empty: the model of all agents."),
    ),
    el("div", { class: "flow" }, add),
    told,
  );
}

async function shown(promise) {
  try {
    return await promise;
  } catch (error) {
    complain(error);
    return null;
  }
}
