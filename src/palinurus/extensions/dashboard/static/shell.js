// The frame: the rail on the left, the view in the middle, the drawer on the right. On a phone, rail and drawer are
// sheets over the view.

import { el, icon, clear, append } from "./dom.js";
import { kept, waiting } from "./state.js";
import { wire } from "./wire.js";
import { makeRail } from "./rail.js";
import { makeDrawer } from "./drawer.js";
import { addCommands, openPalette } from "./palette.js";
import { logout } from "./login.js";
import { complain } from "./dialog.js";

const NARROW = matchMedia("(max-width: 800px)");

class Shell {
  /** Where a view is mounted, and where it may add its own buttons. */
  place = el("div", { class: "place" });
  actions = el("div", { class: "bar-actions" });

  #root = el("div", { class: "shell" });
  #heading = el("h1", { class: "bar-title" });
  #title = "";

  mount(root) {
    this.rail = makeRail();
    this.drawer = makeDrawer();
    this.#railButton = toggle("menu", "Agents and sessions", () => this.toggleRail());
    this.#drawerButton = toggle("panel", "Context, memory, approvals, run", () => this.toggleDrawer());
    const search = el(
      "button",
      {
        class: "button-icon",
        type: "button",
        title: "Everything (Ctrl-K)",
        "aria-label": "Palette: everything",
        on: { click: () => openPalette() },
      },
      icon("search"),
    );
    const bar = el(
      "header",
      { class: "bar" },
      this.#railButton,
      this.#heading,
      this.#state(),
      this.actions,
      search,
      this.#drawerButton,
    );
    this.#main = el("main", { class: "main", id: "main", tabIndex: -1 }, bar, this.place);
    const scrim = el("div", { class: "scrim", on: { click: () => this.closeSheets() } });
    const skip = el(
      "a",
      { class: "skip", href: "#main", on: { click: (event) => (event.preventDefault(), this.focusPlace()) } },
      "Skip to content",
    );
    append(this.#root, [skip, this.rail, this.#main, this.drawer.root, scrim]);
    clear(root, this.#root);
    this.#show("rail", !NARROW.matches && kept.get("rail", "open") === "open");
    this.#show("drawer", !NARROW.matches && kept.get("drawer", "closed") === "open");
    NARROW.addEventListener("change", () => this.closeSheets());
    this.#root.addEventListener("close-drawer", () => (this.toggleDrawer(false), this.#drawerButton.focus()));
    this.rail.addEventListener(
      "click",
      (event) => NARROW.matches && event.target.closest("a[href]") && this.closeSheets(),
    );
    document.addEventListener("keydown", (event) => this.#key(event));
    waiting.subscribe(() => this.#retitle());
    addCommands(() => [
      { label: "Agents and sessions", group: "Dashboard", icon: "menu", run: () => this.toggleRail(true) },
      { label: "Log out of this browser", group: "Dashboard", icon: "close", run: () => signOut() },
    ]);
  }

  #main;
  #railButton;
  #drawerButton;

  set title(text) {
    this.#title = text;
    this.#heading.textContent = text;
    this.#retitle();
  }

  /** Without rail and bars: for the login. */
  set bare(yes) {
    this.#root.classList.toggle("bare", yes);
  }

  get narrow() {
    return NARROW.matches;
  }

  toggleRail(open = !this.#root.classList.contains("rail-open")) {
    if (NARROW.matches && open) this.#show("drawer", false);
    this.#show("rail", open);
    if (!NARROW.matches) kept.set("rail", open ? "open" : "closed");
    if (open) this.rail.querySelector(NARROW.matches ? "a, button" : "input")?.focus();
  }

  /** @param {boolean} [open] @param {string} [tab] context | memory | approvals | run */
  toggleDrawer(open = !this.#root.classList.contains("drawer-open"), tab) {
    if (NARROW.matches && open) this.#show("rail", false);
    if (tab) this.drawer.choose(tab);
    this.#show("drawer", open);
    if (!NARROW.matches) kept.set("drawer", open ? "open" : "closed");
    if (open) this.drawer.focus();
  }

  closeSheets() {
    if (!NARROW.matches) return this.#show("rail", kept.get("rail", "open") === "open");
    const open = this.#root.classList.contains("rail-open")
      ? this.#railButton
      : this.#root.classList.contains("drawer-open")
        ? this.#drawerButton
        : null;
    this.#show("rail", false);
    this.#show("drawer", false);
    if (open && this.#root.contains(document.activeElement)) open.focus();
  }

  /** A view was opened: screen readers are taken there, unless the dashboard itself was just opened. */
  arrived(place, first) {
    this.closeSheets();
    if (!first && place !== "/s") this.focusPlace();
  }

  focusPlace() {
    this.#main.focus({ preventScroll: true });
  }

  #show(which, open) {
    this.#root.classList.toggle(`${which}-open`, open);
    const part = which === "rail" ? this.rail : this.drawer.root;
    part.inert = !open;
    (which === "rail" ? this.#railButton : this.#drawerButton).setAttribute("aria-expanded", String(open));
    if (which === "drawer") this.drawer.shown(open);
  }

  #key(event) {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (!this.#root.classList.contains("bare")) openPalette(); // not before login
    } else if (event.key === "Escape" && !event.defaultPrevented && NARROW.matches) this.closeSheets();
  }

  /** The state of the connection, in words when it is not connected. */
  #state() {
    const words = el("span", { class: "wire-words" });
    const node = el(
      "div",
      { class: "wire", role: "status" },
      el("span", { class: "wire-dot", "aria-hidden": "true" }),
      words,
    );
    const show = () => {
      const queued = wire.waiting.length;
      node.dataset.state = wire.state;
      const said = {
        connected: "",
        connecting: "Connecting…",
        reconnecting: "Reconnecting…",
        offline: "Offline",
        unauthorised: "Logged out",
      }[wire.state];
      words.textContent = said && queued ? `${said} ${queued} queued` : said;
      node.title = wire.state === "connected" ? "Connected" : "";
    };
    wire.on("state", show);
    wire.on("outbox", show);
    show();
    return node;
  }

  #retitle() {
    const count = waiting.value.length;
    document.title = `${count ? `(${count}) ` : ""}${this.#title ? `${this.#title} · ` : ""}Palinurus`;
  }
}

/** Log out, and leave nothing of the session in this browser. */
async function signOut() {
  try {
    sessionStorage.clear();
    await logout();
  } catch (error) {
    complain(error);
  }
}

function toggle(name, label, click) {
  return el(
    "button",
    {
      class: "button-icon",
      type: "button",
      "aria-label": label,
      title: label,
      "aria-expanded": "false",
      on: { click },
    },
    icon(name),
  );
}

export const shell = new Shell();
