// Coming in: a link from the terminal carries a code in its fragment, which no browser sends anywhere. It is taken out
// of the address at once and exchanged for a cookie, which scripts cannot read, and a key, which this page keeps: the
// cookie goes to every port of this machine, the key to nobody but this page, and both are needed.

import { el, mark } from "./dom.js";

const KEY = "pal.key";

export const title = "Come in";

/** What the page shows together with its cookie. */
export function pageKey() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // a browser that keeps nothing
  }
}

const code = takeCode();
let entering = code ? enter(code) : null;
let show = () => {}; // set while the place is shown

// A link that is pasted into a tab which shows this very place only changes the fragment.
addEventListener("hashchange", () => {
  const another = takeCode();
  if (!another) return;
  entering = enter(another);
  show();
});

/** The code in the address, which is clean afterwards: it shall not stay in the history or on the screen. */
function takeCode() {
  if (location.pathname !== "/login" || !location.hash) return "";
  const found = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
  history.replaceState(null, "", "/login");
  return found;
}

/** @returns {Promise<string>} what went wrong, in a sentence; when nothing did, the page goes on to the conversation */
async function enter(code) {
  try {
    const answer = await post("/page/login", { code });
    const told = await answer.json();
    if (!answer.ok) return answer.status === 401 ? "This link was used already, or is older than five minutes." : told.title;
    localStorage.setItem(KEY, told.key);
    location.replace("/");
    return "";
  } catch (error) {
    return error instanceof DOMException
      ? "This browser does not let the page keep anything, so it cannot stay logged in."
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
    el("p", null, "This page is your agent’s, and opens by a link that only you can make. In a terminal on the machine where it runs:"),
    el("pre", { class: "mono login-command", tabIndex: 0, "aria-label": "The command" }, "pal dashboard"),
    pageKey() && el("p", { class: "login-quiet" }, "This browser came in before. ", el("a", { href: "/" }, "To the conversation")),
    el("p", { class: "login-quiet" }, "For a phone in the same network: ", el("code", null, "pal dashboard --qr"), ". A link is good once, for five minutes."),
  );
  root.append(el("section", { class: "login", "aria-label": title }, mark(), el("h2", null, "Palinurus"), said, how));
  show = () => {
    const mine = entering;
    said.textContent = mine ? "Coming in…" : "";
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
