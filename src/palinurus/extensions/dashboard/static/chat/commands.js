// The palette's commands for the open session.

import { sessionActions } from "../session_actions.js";
import { notify, openMenu } from "../dialog.js";
import { el, icon } from "../dom.js";
import { shell } from "../shell.js";

const GROUP = "This session";
const QUEUE = ["steer", "followup", "collect", "interrupt"];
const TABS = ["context", "memory", "approvals", "run"];

/**
 * @param {string} key of the session
 * @param {{model: HTMLElement, thinking: HTMLElement, patch(fields: object): Promise<boolean>}} choosers
 * @param {false | (() => void)} stop stops the run, if there is one
 * @returns {import("../palette.js").Command[]}
 */
export function commandsFor(key, choosers, stop) {
  const commands = [
    ...(stop ? [{ label: "Stop run", icon: "stop", side: "Esc", run: stop }] : []),
    { label: "Change model", icon: "agent", run: () => choosers.model.click() },
    { label: "Change thinking level", icon: "thought", run: () => choosers.thinking.click() },
    ...sessionActions(key),
    ...TABS.map((tab) => ({ label: `Drawer: ${tab}`, icon: "panel", run: () => shell.toggleDrawer(true, tab) })),
    ...QUEUE.map((mode) => ({
      label: `Queue mode: ${mode}`,
      icon: "runs",
      run: async () => (await choosers.patch({ queueMode: mode })) && notify(`Queue mode is now ${mode}.`),
    })),
  ];
  return commands.map((command) => ({ ...command, group: GROUP }));
}

/** The button in the bar for the actions on the whole session. */
export function menuFor(key) {
  const label = "This session";
  const about = { "aria-label": label, title: label, "aria-haspopup": "menu", "aria-expanded": "false" };
  const button = el("button", { class: "button-icon", type: "button", ...about }, icon("more"));
  button.addEventListener("click", () => openMenu(button, sessionActions(key), { label }));
  return button;
}
