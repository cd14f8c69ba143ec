// Our own markdown, drawn as elements. Streamed text is drawn as it arrives: complete blocks are never touched again and
// only the last one is redrawn, so nothing jumps. Long texts are drawn in slices.

import { el, icon } from "./dom.js";
import { block, cells, HEADING, ITEM, QUOTE } from "./blocks.js";
import { inline } from "./inline.js";

const DEEPEST = 6;
const SLICE = 8; // milliseconds
const LONG = 20_000; // characters drawn at once
const PIECE = 16_000; // characters of plain text in one element: browsers lay out only what is in view
const LONG_PARAGRAPH = 10_000; // characters; a longer paragraph is drawn as plain text

/** Draw all blocks of some lines. */
function draw(lines, citing, depth) {
  const nodes = [];
  for (let found = block(lines, 0); found; found = block(lines, found.end)) nodes.push(drawn(found, citing, depth));
  return nodes;
}

function drawn(found, citing, depth = 0) {
  const { kind, lines } = found;
  if (depth > DEEPEST) return el("p", null, lines.join("\n"));
  if (kind === "code") return codeBlock(lines.join("\n"), found.info);
  if (kind === "heading") return heading(lines[0], citing);
  if (kind === "rule") return el("hr");
  if (kind === "quote")
    return el(
      "blockquote",
      null,
      draw(
        lines.map((line) => line.replace(QUOTE, "")),
        citing,
        depth + 1,
      ),
    );
  if (kind === "list") return drawnList(lines, citing, depth);
  if (kind === "table") return table(lines, citing);
  const text = lines
    .map((line) => (line.endsWith("  ") ? `${line.trim()}\\` : line.trim()))
    .join("\n")
    .replace(/\\$/, "");
  return el("p", null, text.length > LONG_PARAGRAPH ? text : inline(text, citing));
}

function heading(line, citing) {
  const [whole, hashes] = HEADING.exec(line);
  const words = line
    .slice(whole.length)
    .trim()
    .replace(/[ \t]#{1,20}$/, "");
  // The dashboard itself uses the first two heading levels.
  return el(`h${Math.min(hashes.length + 2, 6)}`, { class: `md-h${hashes.length}` }, inline(words, citing));
}

function drawnList(lines, citing, depth) {
  const [, , first] = ITEM.exec(lines[0]);
  const base = /^ */.exec(lines[0])[0].length;
  const items = [];
  for (const line of lines) {
    const mark = ITEM.exec(line);
    if (mark && mark[1].length < base + 2) items.push([line.slice(mark[0].length)]);
    else items.at(-1).push(line.replace(new RegExp(`^ {0,${base + Math.max(2, first.length + 1)}}`), ""));
  }
  const ordered = /\d/.test(first);
  return el(
    ordered ? "ol" : "ul",
    ordered ? { start: parseInt(first, 10) } : null,
    items.map((each) => item(each, citing, depth)),
  );
}

function item(lines, citing, depth) {
  const task = /^\[([ xX])\] /.exec(lines[0]);
  const sign = task
    ? el(
        "span",
        { class: "md-task", role: "img", "aria-label": task[1] === " " ? "to do" : "done" },
        task[1] === " " ? "☐" : "☑",
      )
    : null;
  const rest = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
  const nodes = draw(rest, citing, depth + 1);
  const tight =
    nodes[0]?.tagName === "P" &&
    !rest.some((line, at) => !line.trim() && rest.slice(at + 1).some((next) => next.trim()));
  return el(
    "li",
    task ? { class: "md-todo" } : null,
    sign,
    tight ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes,
  );
}

function table(lines, citing) {
  const sides = cells(lines[1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : null));
  const row = (line, tag) =>
    el(
      "tr",
      null,
      cells(line)
        .slice(0, sides.length)
        .map((cell, at) =>
          el(tag, { class: sides[at] && `md-${sides[at]}`, scope: tag === "th" ? "col" : null }, inline(cell, citing)),
        ),
    );
  const body = el(
    "table",
    null,
    el("thead", null, row(lines[0], "th")),
    el(
      "tbody",
      null,
      lines.slice(2).map((line) => row(line, "td")),
    ),
  );
  return el("div", { class: "md-table", role: "region", "aria-label": "Table", tabIndex: 0 }, body);
}

/** Code with its language and a button to copy it. */
export function codeBlock(text, info = "") {
  const language = /^[\w+#.-]{1,24}/.exec(info)?.[0] ?? "";
  const code = el("code", null, text);
  return el(
    "div",
    { class: "md-code" },
    el(
      "div",
      { class: "md-code-head" },
      el("span", null, language),
      copyButton(() => code.textContent),
    ),
    el("pre", { tabIndex: 0, role: "group", "aria-label": language ? `${language} code` : "code" }, code),
  );
}

/** @param {() => string} text called when the button is pressed */
export function copyButton(text, label = "Copy") {
  const button = el(
    "button",
    { class: "button-icon copy", type: "button", "aria-label": label, title: label },
    icon("copy"),
  );
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.replaceChildren(icon("check"));
      button.setAttribute("aria-label", "Copied");
    } catch {
      button.setAttribute("aria-label", "The browser blocked copying");
    }
    setTimeout(() => (button.replaceChildren(icon("copy")), button.setAttribute("aria-label", label)), 1_500);
  });
  return button;
}

/** A text that is drawn while it streams. */
export class MarkdownView {
  node = el("div", { class: "md" });
  #text = "";
  #settled = 0; // characters that will not be redrawn
  #tail = { nodes: [], kind: "" }; // what may still change
  #citing = { numbers: new Map() };
  #drawing = false;

  get text() {
    return this.#text;
  }

  /** Append text. Cheap: only the incomplete block is redrawn. */
  append(text) {
    this.#text += text;
    this.node.classList.toggle("md-long", this.#text.length > LONG);
    if (!this.#drawing) this.#all();
  }

  /** The whole text. A long one is drawn in slices; `signal` stops that early. */
  set(text, signal) {
    this.#text = text;
    this.#settled = 0;
    this.#tail = { nodes: [], kind: "" };
    this.#citing.numbers.clear();
    this.node.replaceChildren();
    this.node.classList.toggle("md-long", text.length > LONG);
    return this.#all(signal);
  }

  async #all(signal) {
    if (this.#text.length - this.#settled <= LONG) return void this.#draw(Infinity);
    this.#drawing = true;
    while (!signal?.aborted && this.#draw(SLICE)) await pause();
    this.#drawing = false;
  }

  /** Draw for at most so many milliseconds. Returns whether something is left. */
  #draw(room) {
    const began = performance.now();
    const lines = this.#text.slice(this.#settled).split("\n");
    const whole = lines.slice(0, -1); // the last line may still change
    let at = 0;
    for (let found = block(whole, 0); found && !found.open; found = block(whole, at)) {
      this.#replaceTail([drawn(found, this.#citing)], "");
      for (; at < found.end; at++) this.#settled += lines[at].length + 1;
      this.#tail = { nodes: [], kind: "" };
      if (performance.now() - began > room) return true;
    }
    this.#grow(lines.slice(at));
    return false;
  }

  #grow(lines) {
    const first = block(lines, 0);
    const alone = first && !block(lines, first.end);
    // Code that streams in only gets longer: append what is new.
    if (alone && first.kind === "code" && this.#tail.kind === "code") {
      const text = this.#tail.nodes[0].querySelector("code").firstChild;
      const all = first.lines.join("\n");
      if (text && all.startsWith(text.data)) return void text.appendData(all.slice(text.data.length));
    }
    // A citation that is only half there must not use up a number.
    this.#replaceTail(draw(lines, { numbers: new Map(this.#citing.numbers) }, 0), alone ? first.kind : "");
  }

  #replaceTail(nodes, kind) {
    for (const node of this.#tail.nodes) node.remove();
    this.node.append(...nodes);
    this.#tail = { nodes, kind };
  }
}

/** Let the browser do other work first. */
export function pause() {
  return globalThis.scheduler?.yield ? scheduler.yield() : new Promise((resolve) => setTimeout(resolve));
}

/** Plain text in pieces, a few at a time, so that a megabyte does not block the browser. */
export async function plainPieces(text, root, signal) {
  for (let at = 0; at < text.length; at += PIECE) {
    if (signal?.aborted) return;
    const piece = text.slice(at, at + PIECE);
    const lines = piece.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / 85)), 0);
    // Estimate the height well: what is out of view is not laid out, and should not jump when it comes into view.
    root.append(el("div", { class: "plain-piece", style: { containIntrinsicSize: `auto ${lines * 22}px` } }, piece));
    await pause();
  }
}
