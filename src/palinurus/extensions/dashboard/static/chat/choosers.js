// Below the message box: the model and its price, the thinking level, and what happens to messages sent during a run.

import { el } from "../dom.js";
import { complain, openMenu } from "../dialog.js";
import { count, price, tokens } from "../format.js";
import { go } from "../router.js";
import { wire } from "../wire.js";

const THINKING = ["off", "minimal", "low", "medium", "high", "xhigh", "max"];
const QUEUE = [
  ["steer", "Steer", "read after the current step"],
  ["followup", "Follow up", "answered in a run of its own"],
  ["collect", "Collect", "waiting messages become one run"],
  ["interrupt", "Interrupt", "stop the run and answer this"],
];

let models = null; // of all agents; loaded once

async function knownModels() {
  models ??= (await wire.call("models.list")).models;
  return models;
}

/** Load again: a key was added, or the config changed. */
export function forgetModels() {
  models = null;
}

const label = (model) => model?.name || model?.id || "";

function costOf(model) {
  if (!model?.cost) return "";
  return model.cost.input || model.cost.output
    ? `${price(model.cost.input)} in · ${price(model.cost.output)} out`
    : "free";
}

/**
 * @param {() => string} key of the current session
 */
export function makeChoosers(key) {
  const model = chooser("Model", modelMenu);
  const thinking = chooser("Thinking level", thinkingMenu);
  const queue = chooser("Messages sent during a run", queueMenu);
  const fill = el("span", { class: "window-fill" });
  const window = el(
    "div",
    {
      class: "window",
      role: "meter",
      "aria-label": "Context window used",
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      hidden: true,
    },
    fill,
  );
  let now = { ref: "", thinking: "", queue: "", row: null };

  function chooser(name, open) {
    const button = el(
      "button",
      { class: "chooser", type: "button", "aria-haspopup": "menu", "aria-expanded": "false", title: name },
      "…",
    );
    button.addEventListener("click", async () => {
      try {
        openMenu(button, await open(), { label: name });
      } catch (error) {
        complain(error);
      }
    });
    return button;
  }

  async function patch(fields) {
    try {
      const done = await wire.call("sessions.patch", { key: key(), ...fields });
      show(done.entry, done.resolved);
      return true;
    } catch (error) {
      complain(error);
      return false;
    }
  }

  async function modelMenu() {
    forgetModels();
    const known = await knownModels();
    const rows = known.map((each) => ({
      label: label(each),
      side: [each.provider, costOf(each), each.contextWindow ? tokens(each.contextWindow) : ""]
        .filter(Boolean)
        .join(" · "),
      checked: `${each.provider}/${each.id}` === now.ref,
      run: () => patch({ model: `${each.provider}/${each.id}` }),
    }));
    return [
      ...rows,
      { label: "Default of the agent", icon: "reset", run: () => patch({ model: null }) },
      { label: "Add a model or API key…", icon: "plus", run: () => go("/welcome") },
    ];
  }

  async function thinkingMenu() {
    const rows = THINKING.map((level) => ({
      label: level,
      checked: level === now.thinking,
      run: () => patch({ thinkingLevel: level }),
    }));
    return [
      { heading: "Thinking level" },
      ...rows,
      { label: "Default", icon: "reset", run: () => patch({ thinkingLevel: null }) },
    ];
  }

  async function queueMenu() {
    const rows = QUEUE.map(([mode, name, meaning]) => ({
      label: name,
      side: meaning,
      checked: mode === (now.queue || "steer"),
      run: () => patch({ queueMode: mode }),
    }));
    return [{ heading: "Messages sent during a run" }, ...rows];
  }

  /** @param {any} row of the session, if there is one @param {any} [resolved] the model of the next run */
  async function show(row, resolved) {
    const provider = resolved?.modelProvider ?? row?.modelProvider;
    const id = resolved?.model ?? row?.model;
    now = {
      ref: provider ? `${provider}/${id}` : now.ref,
      thinking: resolved?.thinkingLevel ?? row?.thinkingLevel ?? "",
      queue: row?.queueMode ?? "",
      row,
    };
    queue.textContent = QUEUE.find(([mode]) => mode === (now.queue || "steer"))[1];
    thinking.textContent = now.thinking ? `Thinking: ${now.thinking}` : "Thinking: default";
    model.textContent = now.ref || "model";
    try {
      const known = (await knownModels()).find((each) => `${each.provider}/${each.id}` === now.ref);
      model.replaceChildren(
        label(known) || now.ref || "Choose a model",
        costOf(known) ? el("span", { class: "chooser-price" }, costOf(known)) : "",
      );
      thinking.hidden = known ? !known.reasoning : false;
      showWindow(row?.totalTokens ?? 0, known?.contextWindow ?? 0);
    } catch {
      // the model's reference is shown already
    }
  }

  function showWindow(used, size) {
    window.hidden = !used || !size;
    if (window.hidden) return;
    const share = Math.min(100, Math.round((used / size) * 100));
    fill.style.width = `${share}%`;
    window.classList.toggle("nearly-full", share >= 80);
    window.setAttribute("aria-valuenow", share);
    window.title = `${count(used)} of ${count(size)} tokens of the context window used`;
  }

  /** A session that has not begun: the model its agent would use. */
  async function showAgent(agent) {
    try {
      const status = await wire.call("models.status", { agent });
      const [provider, ...id] = status.model.split("/");
      await show(null, { modelProvider: provider, model: id.join("/"), thinkingLevel: "" });
    } catch (error) {
      complain(error); // show now why the agent could not answer
      await show(null, null);
    }
  }

  return { model, thinking, queue, window, show, showAgent, patch, modelMenu, current: () => now.ref };
}
