// Login: a link from the terminal carries a code in its fragment, which browsers never send. The code is removed from
// the address at once and exchanged for a cookie, which scripts cannot read, and a key, which the dashboard stores. The
// cookie is sent to every port of this machine, the key only by the dashboard, and both are needed.

import { el, mark } from "./dom.js";

const KEY = "pal.key";

export const title = "Log in";

/** The key that the dashboard sends together with its cookie. */
export function pageKey() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // this browser stores nothing
  }
}

const code = takeCode();
let entering = code ? enter(code) : null;
let show = () => {}; // set while the view is shown

// A link pasted into a tab that already shows this view changes only the fragment.
addEventListener("hashchange", () => {
  const another = takeCode();
  if (!another) return;
  entering = enter(another);
  show();
});

/** Take the code out of the address, so that it does not stay in the history or on the screen. */
function takeCode() {
  if (location.pathname !== "/login" || !location.hash) return "";
  const found = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
  history.replaceState(null, "", "/login");
  return found;
}

/** @returns {Promise<string>} what went wrong, in a sentence; on success the dashboard opens the chat */
async function enter(code) {
  try {
    const answer = await post("/page/login", { code });
    const told = await answer.json();
    if (!answer.ok) return answer.status === 401 ? "This link has been used or has expired. Run the command again for a new one." : told.title;
    localStorage.setItem(KEY, told.key);
    location.replace("/");
    return "";
  } catch (error) {
    return error instanceof DOMException
      ? "This browser blocks local storage, so you cannot stay logged in."
      : "The gateway does not answer. Is it still running?";
  }
}

/** End this browser's session. */
export async function logout() {
  await post("/page/logout", {});
  localStorage.removeItem(KEY);
  location.replace("/login");
}

function post(path, body) {
  return fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

/** @param {HTMLElement} root */
export function mount(root) {
  const said = el("p", { class: "login-said", role: "status" });
  const how = el(
    "div",
    { class: "login-how" },
    el("p", null, "Your dashboard opens with a one-time link. On the machine where your agent runs, enter in a terminal:"),
    el("pre", { class: "mono login-command", tabIndex: 0, "aria-label": "Command" }, "pal dashboard"),
    pageKey() && el("p", { class: "login-quiet" }, "This browser has logged in before. ", el("a", { href: "/" }, "Open the dashboard")),
    el("p", { class: "login-quiet" }, "For a phone on the same network: ", el("code", null, "pal dashboard --qr"), ". A link works once and expires after five minutes."),
  );
  root.append(el("section", { class: "login", "aria-label": title }, mark(), el("h2", null, "Palinurus"), said, how));
  show = () => {
    const mine = entering;
    said.textContent = mine ? "Logging in…" : "";
    how.hidden = Boolean(mine);
    mine?.then((trouble) => {
      if (mine !== entering || !trouble) return;
      said.textContent = trouble;
      how.hidden = false;
    });
  };
  show();
  return () => {
    show = () => {};
  };
}
