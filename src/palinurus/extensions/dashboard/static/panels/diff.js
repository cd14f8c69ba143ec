// Compares two texts line by line and draws the difference. Myers' algorithm, bounded: texts that have little in common
// are shown as one replaced by the other.

import { el } from "../dom.js";

const MOST_EDITS = 1500;
const AROUND = 3; // unchanged lines shown around a change
const MOST_SHOWN = 4000; // lines

/** @typedef {{ sign: " " | "+" | "-", text: string, before: number, after: number }} Edit line numbers, from 1 */

/** @param {string} before @param {string} after @returns {Edit[]} */
export function compare(before, after) {
  const a = before === "" ? [] : before.split("\n");
  const b = after === "" ? [] : after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const signs = [
    ..." ".repeat(head),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ..." ".repeat(tail),
  ];
  return numbered(signs, a, b);
}

function numbered(signs, a, b) {
  let i = 0;
  let j = 0;
  return signs.map((sign) => {
    const text = sign === "+" ? b[j] : a[i];
    if (sign !== "+") i++;
    if (sign !== "-") j++;
    return { sign, text, before: i, after: j };
  });
}

/** The shortest edit script from a to b; when it is too long, all of a is removed and all of b is added. */
function middle(a, b) {
  const all = [...Array(a.length).fill("-"), ...Array(b.length).fill("+")];
  if (!a.length || !b.length) return all;
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const shift = most + 1;
  const reach = new Int32Array(2 * most + 3);
  const steps = [];
  for (let edits = 0; edits <= most; edits++) {
    steps.push(reach.slice(shift - edits - 1, shift + edits + 2));
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && reach[shift + k - 1] < reach[shift + k + 1]);
      let x = down ? reach[shift + k + 1] : reach[shift + k - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach[shift + k] = x;
      if (x >= a.length && x - k >= b.length) return walked(steps, a.length, b.length);
    }
  }
  return all;
}

/** Back from the end to the beginning along the steps. */
function walked(steps, endX, endY) {
  const signs = [];
  let x = endX;
  let y = endY;
  for (let edits = steps.length - 1; edits >= 0; edits--) {
    const reach = (k) => steps[edits][k + edits + 1];
    const k = x - y;
    const down = k === -edits || (k !== edits && reach(k - 1) < reach(k + 1));
    const fromX = edits === 0 ? 0 : down ? reach(k + 1) : reach(k - 1);
    const fromY = edits === 0 ? 0 : fromX - (down ? k + 1 : k - 1);
    const afterX = edits === 0 ? 0 : down ? fromX : fromX + 1;
    while (x > afterX && y > (edits === 0 ? 0 : down ? fromY + 1 : fromY)) {
      signs.push(" ");
      x--;
      y--;
    }
    if (edits > 0) signs.push(down ? "+" : "-");
    x = fromX;
    y = fromY;
  }
  return signs.reverse();
}

/** How many lines were added and removed. @param {Edit[]} edits */
export function summary(edits) {
  const added = edits.filter((edit) => edit.sign === "+").length;
  const removed = edits.filter((edit) => edit.sign === "-").length;
  return { added, removed, words: added || removed ? `${added} added, ${removed} removed` : "no change" };
}

/** The changes with a few lines around them. @param {Edit[]} edits */
export function diffView(edits) {
  const shown = new Set();
  edits.forEach((edit, at) => {
    if (edit.sign === " ") return;
    for (let near = Math.max(0, at - AROUND); near <= Math.min(edits.length - 1, at + AROUND); near++) shown.add(near);
  });
  const rows = [];
  let last = -1;
  for (const at of [...shown].sort((one, other) => one - other).slice(0, MOST_SHOWN)) {
    if (at !== last + 1)
      rows.push(el("div", { class: "diff-gap" }, at - last - 1 === 1 ? "1 line" : `${at - last - 1} lines`));
    rows.push(line(edits[at].sign, edits[at].text, edits[at].sign === "-" ? edits[at].before : edits[at].after));
    last = at;
  }
  const { words } = summary(edits);
  return el(
    "div",
    { class: "diff mono", role: "region", tabindex: "0", "aria-label": `Changes: ${words}` },
    rows.length ? rows : el("div", { class: "diff-gap" }, "No change"),
  );
}

/** A difference as text, as git writes it. @param {string} text */
export function unifiedView(text) {
  const rows = text
    .split("\n")
    .slice(0, MOST_SHOWN)
    .map((each) => {
      if (/^(diff |index |--- |\+\+\+ |@@|new file|deleted file|similarity|rename)/.test(each))
        return el("div", { class: "diff-gap" }, each);
      return /^[+-]/.test(each) ? line(each[0], each.slice(1), null) : line(" ", each.replace(/^ /, ""), null);
    });
  return el("div", { class: "diff mono", role: "region", tabindex: "0", "aria-label": "Changes" }, rows);
}

function line(sign, text, number) {
  const kind = { "+": "diff-added", "-": "diff-removed", " ": "diff-same" }[sign];
  const tag = { "+": "ins", "-": "del", " ": "span" }[sign];
  return el(
    "div",
    { class: `diff-line ${kind}` },
    el("span", { class: "diff-number", "aria-hidden": "true" }, number === null ? "" : String(number)),
    el("span", { class: "diff-sign" }, sign),
    el(tag, { class: "diff-text" }, text || " "),
  );
}
