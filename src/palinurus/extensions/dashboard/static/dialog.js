// Questions to the person, menus and short notices. All are our own, so that they look and behave alike everywhere.

import { el, icon } from "./dom.js";

/**
 * Ask for confirmation.
 *
 * @param {{title: string, text?: string, yes?: string, danger?: boolean}} about
 * @returns {Promise<boolean>}
 */
export async function confirm({ title, text = "", yes = "Yes", danger = false }) {
  const answer = await dialog(
    title,
    text ? [el("p", { class: "quiet" }, text)] : [],
    yes,
    danger ? "button-coral" : "button",
  );
  return answer !== null;
}

/**
 * Do something for which the gateway may require confirmation: then its message is shown, and the call is repeated
 * with the confirmation.
 * @param {(yes: {confirmed?: boolean}) => Promise<any>} attempt
 * @returns {Promise<any>} null: cancelled
 */
export async function twice(attempt, title = "Allow this always?") {
  try {
    return await attempt({});
  } catch (error) {
    if (error.details?.code !== "NOT_CONFIRMED") throw error;
    if (!(await confirm({ title, text: `${sentence(error.message)}.`, yes: "Allow always", danger: true }))) return null;
    return attempt({ confirmed: true });
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * Ask for a line of text.
 *
 * @returns {Promise<string | null>} null: cancelled
 */
export async function ask({ title, label, value = "", yes = "Save", maxLength = 512 }) {
  const field = el("input", { class: "field", value, maxLength, "aria-label": label });
  const answer = await dialog(title, [field], yes, "button", () => field.select());
  return answer === null ? null : field.value.trim();
}

function dialog(title, content, yes, kind, opened = () => {}) {
  return new Promise((resolve) => {
    const id = `dialog-${Math.random().toString(36).slice(2)}`;
    const cancel = el("button", { class: "button-quiet", type: "button", on: { click: () => node.close() } }, "Cancel");
    const buttons = el("div", { class: "dialog-buttons" }, cancel, el("button", { class: kind, type: "submit" }, yes));
    const form = el(
      "form",
      { on: { submit: (event) => (event.preventDefault(), node.close("yes")) } },
      content,
      buttons,
    );
    const node = el("dialog", { "aria-labelledby": id }, el("h2", { id }, title), form);
    node.addEventListener("close", () => {
      node.remove();
      caretBack();
      resolve(node.returnValue === "yes" ? "yes" : null);
    });
    node.addEventListener("click", (event) => event.target === node && node.close()); // a click outside
    node.addEventListener("keydown", (event) => event.stopPropagation()); // Esc only closes the dialog
    document.body.append(node);
    node.showModal();
    opened();
  });
}

/** Chromium returns the focus to the field that had it before the dialog, but sometimes loses the caret. */
export function caretBack() {
  const box = document.activeElement;
  if (box instanceof HTMLTextAreaElement) box.setSelectionRange(box.selectionStart, box.selectionEnd);
}

/**
 * A menu at a button. Arrow keys move, Esc closes, the focus returns to the button.
 *
 * @param {HTMLElement} anchor
 * @param {({label: string, icon?: string, side?: string, danger?: boolean, checked?: boolean, run: () => void} | {heading: string} | null)[]} items
 * @param {{label?: string}} [about]
 */
export function openMenu(anchor, items, { label = "Menu" } = {}) {
  const rows = items
    .filter(Boolean)
    .map((item) =>
      item.heading ? el("div", { class: "menu-heading", role: "presentation" }, item.heading) : row(item),
    );
  const menu = el("div", { class: "menu", role: "menu", "aria-label": label, popover: "manual" }, rows);
  const choices = rows.filter((each) => each.role === "menuitem" || each.role === "menuitemradio");

  function row(item) {
    const choose = () => (close(), item.run());
    const role = item.checked === undefined ? "menuitem" : "menuitemradio";
    const sign =
      item.checked === undefined
        ? item.icon
          ? icon(item.icon)
          : null
        : el("span", { class: "menu-check", "aria-hidden": "true" }, item.checked ? icon("check") : null);
    return el(
      "button",
      {
        class: `menu-item${item.danger ? " menu-item-danger" : ""}`,
        type: "button",
        role,
        tabIndex: -1,
        "aria-checked": item.checked,
        on: { click: choose },
      },
      sign,
      el("span", null, item.label),
      item.side ? el("span", { class: "menu-item-side" }, item.side) : null,
    );
  }

  function close() {
    removeEventListener("pointerdown", beside, true);
    removeEventListener("resize", close);
    anchor.setAttribute("aria-expanded", "false");
    menu.remove();
    if (anchor.isConnected) anchor.focus();
  }

  const beside = (event) => !menu.contains(event.target) && close();
  menu.addEventListener("keydown", (event) => {
    const at = choices.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: choices.length - 1 }[event.key];
    if (to !== undefined) choices[(to + choices.length) % choices.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") close();
    else if (event.key.length === 1)
      choices.find((each) => each.textContent.trim().toLowerCase().startsWith(event.key.toLowerCase()))?.focus();
    if (to !== undefined || event.key === "Escape" || event.key === "Tab") event.preventDefault();
    event.stopPropagation();
  });
  document.body.append(menu);
  menu.showPopover?.(); // above everything, dialogs included
  place(menu, anchor.getBoundingClientRect());
  anchor.setAttribute("aria-expanded", "true");
  addEventListener("pointerdown", beside, true);
  addEventListener("resize", close);
  (choices.find((each) => each.getAttribute("aria-checked") === "true") ?? choices[0])?.focus();
}

/** Below the button, or above it where there is more space. */
function place(menu, at) {
  const { width, height } = menu.getBoundingClientRect();
  const below = at.bottom + 4 + height <= innerHeight || at.top < innerHeight / 2;
  menu.style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`;
  menu.style.top = `${Math.max(8, below ? at.bottom + 4 : at.top - height - 4)}px`;
  menu.style.maxHeight = `${(below ? innerHeight - at.bottom : at.top) - 12}px`;
}

let shelf = null;

/** A notice at the edge of the window that disappears by itself; an error stays longer and is announced. */
export function notify(text, { error = false, hint = "" } = {}) {
  if (!shelf?.isConnected) document.body.append((shelf = el("div", { class: "notices" })));
  const close = el(
    "button",
    { class: "button-icon", type: "button", "aria-label": "Dismiss", on: { click: () => note.remove() } },
    icon("close"),
  );
  const words = el("div", null, text, hint ? el("div", { class: "quiet" }, hint) : null);
  const note = el(
    "div",
    { class: `notice-line${error ? " notice-error" : ""}`, role: error ? "alert" : "status" },
    words,
    close,
  );
  shelf.append(note);
  setTimeout(() => note.remove(), error ? 12_000 : 5_000);
}

/** Show an error in the gateway's own words. */
export function complain(error) {
  if (error.code === "WITHDRAWN") return;
  notify(error.message, { error: true, hint: error.hint });
}
