// The right drawer: the same panels as in the middle, compact, and about the current session.

import { el, icon, clear } from "./dom.js";
import { complain } from "./dialog.js";
import { agents, kept, session } from "./state.js";

const TABS = [
  { name: "context", label: "Context", load: () => import("./panels/context.js") },
  { name: "memory", label: "Memory", load: () => import("./panels/memory.js") },
  { name: "approvals", label: "Approvals", load: () => import("./panels/approvals.js") },
  { name: "run", label: "Run", load: () => import("./panels/runs.js") },
];

/**
 * @returns {{root: HTMLElement, choose(name: string): void, shown(open: boolean): void, focus(): void}} While the
 *   drawer is closed, nothing is mounted and nothing is requested.
 */
export function makeDrawer() {
  const body = el("div", { class: "drawer-body", role: "tabpanel", id: "drawer-body", tabIndex: 0 });
  const tabs = TABS.map((tab) =>
    el(
      "button",
      {
        class: "tab",
        type: "button",
        role: "tab",
        id: `tab-${tab.name}`,
        "aria-controls": "drawer-body",
        on: { click: () => choose(tab.name) },
      },
      tab.label,
    ),
  );
  const strip = el(
    "div",
    { class: "tabs", role: "tablist", "aria-label": "About this session", on: { keydown: walk } },
    tabs,
  );
  const root = el(
    "aside",
    { class: "drawer", "aria-label": "About this session" },
    el("div", { class: "drawer-head" }, strip, closeButton()),
    body,
  );
  let chosen = TABS.some((tab) => tab.name === kept.get("tab")) ? kept.get("tab") : "context";
  let open = false;
  let visit = 0;
  let unmount = () => {};

  async function mount() {
    const mine = ++visit;
    unmount();
    unmount = () => {};
    clear(body);
    tabs.forEach((tab, index) => {
      const on = TABS[index].name === chosen;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
    });
    body.setAttribute("aria-labelledby", `tab-${chosen}`);
    if (!open || !session.value) return;
    try {
      const module = await TABS.find((tab) => tab.name === chosen).load();
      if (mine !== visit) return;
      const agent = session.value.split(":")[1] || agents.value.defaultId;
      unmount =
        module.mount(body, { compact: true, session: session.value, agent, query: new URLSearchParams() }) ??
        (() => {});
    } catch (error) {
      if (mine !== visit) return;
      complain(error);
      clear(body, el("p", { class: "empty" }, "This could not be opened."));
    }
  }

  function choose(name) {
    chosen = name;
    kept.set("tab", name);
    mount();
  }

  function walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = (TABS.findIndex((tab) => tab.name === chosen) + step + TABS.length) % TABS.length;
    choose(TABS[at].name);
    tabs[at].focus();
  }

  function closeButton() {
    const click = () => root.dispatchEvent(new CustomEvent("close-drawer", { bubbles: true }));
    return el(
      "button",
      { class: "button-icon", type: "button", "aria-label": "Close the drawer", on: { click } },
      icon("close"),
    );
  }

  session.subscribe(() => open && mount());
  return {
    root,
    choose,
    shown(now) {
      if (now === open) return;
      open = now;
      mount();
    },
    focus: () => tabs[TABS.findIndex((tab) => tab.name === chosen)].focus(),
  };
}
