// What the palette offers while a conversation is looked at.

import { choicesFor } from "../conversations.js";
import { notify, openMenu } from "../dialog.js";
import { el, icon } from "../dom.js";
import { shell } from "../shell.js";

const GROUP = "This conversation";
const QUEUE = ["steer", "followup", "collect", "interrupt"];
const TABS = ["context", "memory", "approvals", "run"];

/**
 * @param {string} key of the session
 * @param {{model: HTMLElement, thinking: HTMLElement, patch(fields: object): Promise<boolean>}} choosers
 * @param {false | (() => void)} stop what stops the run, while there is one
 * @returns {import("../palette.js").Command[]}
 */
export function commandsFor(key, choosers, stop) {
  const commands = [
    ...(stop ? [{ label: "Stop the run", icon: "stop", side: "Esc", run: stop }] : []),
    { label: "Choose the model", icon: "agent", run: () => choosers.model.click() },
    { label: "How hard it thinks", icon: "thought", run: () => choosers.thinking.click() },
    ...choicesFor(key),
    ...TABS.map((tab) => ({ label: `Drawer: ${tab}`, icon: "panel", run: () => shell.toggleDrawer(true, tab) })),
    ...QUEUE.map((mode) => ({
      label: `Queue mode: ${mode}`,
      icon: "runs",
      run: async () => (await choosers.patch({ queueMode: mode })) && notify(`Messages that come meanwhile: ${mode}.`),
    })),
  ];
  return commands.map((command) => ({ ...command, group: GROUP }));
}

/** The button in the bar for what can be done with the whole conversation. */
export function menuFor(key) {
  const label = "This conversation";
  const about = { "aria-label": label, title: label, "aria-haspopup": "menu", "aria-expanded": "false" };
  const button = el("button", { class: "button-icon", type: "button", ...about }, icon("more"));
  button.addEventListener("click", () => openMenu(button, choicesFor(key), { label }));
  return button;
}
