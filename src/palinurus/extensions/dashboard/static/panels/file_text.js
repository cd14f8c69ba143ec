// The text of a file with line numbers, and the unsaved edits of it.

import { el } from "../dom.js";

const MOST_LINES = 5_000; // shown; the editor has all of them
const BEFORE = 200; // lines before the cited ones in a long file

/** The text, scrolled to its cited lines, which are marked. @param {string} text @param {number} from @param {number} to */
export function fileText(text, from = 0, to = from) {
  const all = text.split("\n");
  if (all.at(-1) === "") all.pop();
  const first = from > MOST_LINES - BEFORE ? from - BEFORE : 0;
  const last = Math.max(from, to);
  const rows = all.slice(first, first + MOST_LINES).map((line, at) => {
    const number = first + at + 1;
    const cited = from > 0 && number >= from && number <= last;
    return el(
      "div",
      { class: cited ? "code-line cited" : "code-line" },
      el("span", { class: "code-number", "aria-hidden": "true" }, String(number)),
      el("span", { class: "code-text" }, line || " "),
    );
  });
  const name = from ? `Text, lines ${from} to ${last} are cited` : "Text";
  const box = el("div", { class: "code mono", tabindex: "0", role: "region", "aria-label": name }, rows);
  if (from) requestAnimationFrame(() => intoSight(box));
  const left = all.length - rows.length;
  const more = left > 0 ? `${left} more lines are not shown. Edit the file to see all of them.` : "";
  return el("div", {}, box, more ? el("p", { class: "quiet" }, more) : null);
}

function intoSight(box) {
  const cited = box.querySelector(".cited");
  if (cited) box.scrollTop = cited.offsetTop - 3 * cited.offsetHeight;
}

/** Unsaved edits, in this tab only. @param {{ agent: string, path: string }} file */
export function draftOf({ agent, path }) {
  const key = `palinurus.draft.${agent}.${path}`;
  return {
    get: () => safely(() => sessionStorage.getItem(key)),
    put: (text) => safely(() => sessionStorage.setItem(key, text)),
    drop: () => safely(() => sessionStorage.removeItem(key)),
  };
}

/** Works without storage too. */
function safely(work) {
  try {
    return work();
  } catch {
    return null;
  }
}
