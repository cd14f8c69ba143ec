// One item of the chat as an element. Every element has `update()`, called when its item has changed.

import { el, icon } from "../dom.js";
import { bytes, clockTime, wholeTime } from "../format.js";
import { codeBlock, MarkdownView } from "../markdown.js";
import { drawApproval } from "./approval.js";
import { drawText } from "./text.js";
import { drawTool } from "./tool.js";

/**
 * @param {any} item see thread.js
 * @param {{onAnswer: Function, onAgain: Function, mayAgain: Function, onWithdraw: Function, onWrite: Function}} doing
 */
export function drawItem(item, doing) {
  const row = (DRAW[item.type] ?? drawNotice)(item, doing);
  row.classList.add("row");
  return row;
}

const DRAW = {
  ended: drawEnded,
  user: drawUser,
  text: drawText,
  thought: drawThought,
  tool: drawTool,
  approval: drawApproval,
  notice: drawNotice,
  error: drawError,
  mark: drawMark,
  day: (item) => el("div", { class: "row-day" }, el("span", null, item.label)),
  working: drawWorking,
};

function drawUser(item, { onWithdraw }) {
  const state = el("span", { class: "said-state" });
  const back = el(
    "button",
    { class: "link-button", type: "button", on: { click: () => onWithdraw(item) } },
    "withdraw",
  );
  const images = item.images
    .filter(Boolean)
    .map((src) => el("img", { class: "picture", src, alt: "attached picture", loading: "lazy" }));
  const from =
    item.origin && item.origin !== "owner"
      ? el("span", { class: "chip chip-quiet" }, item.origin === "outside" ? "untrusted" : item.origin)
      : null;
  const bubble = el(
    "div",
    { class: "said" },
    from,
    images.length ? el("div", { class: "pictures" }, images) : null,
    spoken(item.text),
  );
  const node = el(
    "div",
    { class: "row-user" },
    el("span", { class: "visually-hidden" }, "You said:"),
    bubble,
    el("div", { class: "said-foot" }, state, back),
  );
  node.update = () => {
    const words = { queued: "Queued: will be sent when connected", waiting: "Waiting for the current run" }[item.state] ?? "";
    state.textContent = words;
    back.hidden = item.state !== "queued";
    node.classList.toggle("not-yet", Boolean(words));
  };
  node.update();
  bubble.addEventListener("pointerenter", () => (bubble.title = item.timestamp ? wholeTime(item.timestamp) : ""), {
    once: true,
  });
  return node;
}

/** What a person typed: line breaks are kept; fenced code is shown as code. */
function spoken(text) {
  if (!text.includes("```") || text.length > 200_000) return el("div", { class: "said-text" }, text);
  const parts = text.split(/^(`{3,})([^\n`]*)\n([\s\S]*?)^\1[ \t]*$/m);
  const nodes = [];
  for (let at = 0; at < parts.length; at += 4) {
    if (parts[at].trim()) nodes.push(el("div", { class: "said-text" }, parts[at].trim()));
    if (at + 3 < parts.length) nodes.push(folded(parts[at + 3], parts[at + 2]));
  }
  return nodes;
}

function folded(code, info) {
  const text = code.replace(/\n$/, "");
  if (text.length < 1_500) return codeBlock(text, info);
  const details = el(
    "details",
    { class: "said-file" },
    el("summary", null, icon("file"), ` ${info.trim() || "code"} · ${bytes(text.length)}`),
  );
  details.addEventListener(
    "toggle",
    () => details.open && details.children.length === 1 && details.append(codeBlock(text, info)),
  );
  return details;
}

function drawThought(item) {
  const label = el("span");
  const body = el("div", { class: "thought-text" });
  const node = el("details", { class: "row-thought" }, el("summary", null, icon("thought"), label), body);
  const words = () => (item.text.length > 100_000 ? `${item.text.slice(0, 100_000)}…` : item.text);
  node.update = () => {
    label.textContent = item.live ? "Thinking…" : "Thought";
    node.classList.toggle("live", Boolean(item.live));
    if (node.open) body.textContent = words();
  };
  node.addEventListener("toggle", node.update);
  node.update();
  const row = el("div", { class: "row-thoughts" }, node);
  row.update = node.update;
  return row;
}

function drawNotice(item) {
  return Object.assign(el("div", { class: "row-notice" }, item.text), { update: () => {} });
}

/** After the last message of a session that has ended. */
function drawEnded(item) {
  const on = el("a", { href: item.href }, "Open the current session");
  return Object.assign(el("div", { class: "row-notice" }, "This session has ended. ", on), { update: () => {} });
}

/** What went wrong and what to do next. Old errors show only their text. */
function drawError(item, { onAgain, mayAgain }) {
  const fresh = !item.refused && (!item.message || item.fresh);
  const hint = item.hint || "Send the message again, or choose another model.";
  const again = el(
    "button",
    { class: "button-quiet", type: "button", on: { click: () => onAgain(item) } },
    "Try again",
  );
  const where = /\b(key|credential|auth|401|403)\b/i.test(item.text)
    ? el("a", { class: "button-quiet", href: "/welcome" }, "Models and keys")
    : null;
  const look = item.run
    ? el("a", { class: "button-quiet", href: `/runs?id=${encodeURIComponent(item.run)}` }, "Show run")
    : null;
  const next = fresh
    ? [el("p", { class: "quiet" }, hint), el("div", { class: "error-buttons" }, again, where, look)]
    : null;
  const box = el(
    "div",
    { class: "error-box", role: item.message ? null : "alert" },
    icon("error"),
    el("div", null, el("p", null, item.text), next),
  );
  // It keeps its space: the second click of a double click must not hit what would move there.
  const update = () => (again.style.visibility = mayAgain(item) ? "" : "hidden");
  update();
  return Object.assign(el("div", { class: "row-error" }, box), { update });
}

/** Where the model's view begins: messages above are kept, but the model no longer reads them. */
function drawMark(item) {
  const title = { reset: "Session reset", compaction: "Compacted" }[item.kind] ?? item.kind;
  const line = el(
    "div",
    { class: "mark-line" },
    el("span", null, title, item.timestamp ? ` · ${clockTime(item.timestamp)}` : ""),
  );
  if (!item.text || item.kind !== "compaction") return el("div", { class: "row-mark" }, line);
  const details = el("details", null, el("summary", null, "Summary the agent keeps"));
  details.addEventListener("toggle", async () => {
    if (!details.open || details.children.length > 1) return;
    const view = new MarkdownView();
    details.append(view.node);
    await view.set(item.text);
  });
  return el("div", { class: "row-mark" }, line, details);
}

function drawWorking(item) {
  const words = el("span");
  const node = el(
    "div",
    { class: "row-working", role: "status" },
    el("span", { class: "breath", "aria-hidden": "true" }),
    words,
  );
  node.update = () => (words.textContent = item.text);
  node.update();
  return node;
}
