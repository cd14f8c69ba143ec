// The inside of a paragraph: emphasis, code, links, citations. Everything else stays as it was written; HTML is
// shown as text.
//
// The text comes from models and from what they have read. So links go to http, https, mailto or files of the workspace
// only, and images are shown as links, because loading one would tell its host who reads. Every search is bounded: ten
// thousand stars in a row cost no more than ten thousand letters.

import { el } from "./dom.js";

const LOOK_AHEAD = 2_000; // characters in which emphasis or a link must end
const MOST_BRACKETS = 8; // nested
const DEEPEST = 6;
const SPECIAL = /[\\`*_~[!<&]|\bhttps?:\/\/|\bmailto:/g;
const ADDRESS = /^(?:https?:\/\/|mailto:)[^\s<>"'`|\\^{}]+/;
const FILE = /^(?:\.\/)?[\w.@~+/-]+\.[A-Za-z][A-Za-z0-9]{0,7}$/;
const LINES = /#L(\d{1,7})(?:-L?(\d{1,7}))?/g;
const LONGEST_PATH = 240;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", "#39": "'" };
const PLAIN = new Set("\\`*_{}[]()#+-.!|<>~\"'$%&,/:;=?@^");

/**
 * @param {string} text
 * @param {{numbers: Map<string, number>}} [citing] numbers of the citations in this message so far
 * @returns {Node[]}
 */
export function inline(text, citing = { numbers: new Map() }, depth = 0) {
  const nodes = [];
  const searched = new Map(); // delimiter → no closing one before this position
  let words = "";
  let at = 0;
  const flush = () => words && (nodes.push(...plain(words, citing)), (words = ""));
  const put = (node) => (flush(), nodes.push(node));
  SPECIAL.lastIndex = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    words += text.slice(at, next);
    at = next;
    if (at >= text.length) break;
    const found = special(text, at, { citing, depth, searched });
    if (typeof found === "number") {
      words += text.slice(at, at + found); // plain text
      at += found;
    } else if (found.words !== undefined) {
      words += found.words;
      at = found.end;
    } else {
      put(found.node);
      at = found.end;
    }
  }
  flush();
  return nodes;
}

/** What a special character begins: {node, end}, {words, end}, or how many characters of it are plain text. */
function special(text, at, state) {
  switch (text[at]) {
    case "\\":
      if (text[at + 1] === "\n") return { node: el("br"), end: at + 2 };
      return PLAIN.has(text[at + 1]) ? { words: text[at + 1], end: at + 2 } : 1;
    case "`":
      return code(text, at, state);
    case "*":
    case "_":
    case "~":
      return emphasis(text, at, state);
    case "!":
      return text[at + 1] === "[" ? link(text, at + 1, state, true) : 1;
    case "[":
      return link(text, at, state, false);
    case "<":
      return angle(text, at);
    case "&":
      return entity(text, at);
    default:
      return address(text, at);
  }
}

function code(text, at, state) {
  const ticks = /^`+/.exec(text.slice(at, at + 40))[0];
  const end = closing(text, at + ticks.length, ticks);
  if (end < 0) return ticks.length;
  const content = text.slice(at + ticks.length, end).replaceAll("\n", " ");
  const padded = content.startsWith(" ") && content.endsWith(" ") && content.trim();
  const inside = padded ? content.slice(1, -1) : content;
  const [cited] = citations(inside);
  return {
    node: cited?.whole === inside ? chip(cited, state.citing) : el("code", null, inside),
    end: end + ticks.length,
  };
}

/** Where a run of exactly these backticks begins; -1: not within reach. */
function closing(text, from, ticks) {
  const near = text.slice(0, from + LOOK_AHEAD * 4);
  for (let at = near.indexOf(ticks, from); at >= 0; at = near.indexOf(ticks, at)) {
    let end = at;
    while (text[end] === "`") end++;
    if (end - at === ticks.length) return at;
    at = end;
  }
  return -1;
}

const TAGS = { 1: ["em"], 2: ["strong"], 3: ["strong", "em"] };
const isSpace = (letter) => letter === undefined || /\s/.test(letter);
const isWord = (letter) => letter !== undefined && /[\p{L}\p{N}]/u.test(letter);

function emphasis(text, at, { citing, depth, searched }) {
  const letter = text[at];
  let run = 1;
  while (text[at + run] === letter) run++;
  const opens = !isSpace(text[at + run]) && (letter !== "_" || !isWord(text[at - 1]));
  const known = letter === "~" ? run === 2 : run <= 3;
  const delimiter = letter.repeat(run);
  if (!opens || !known || depth >= DEEPEST) return run;
  const end = ending(text, at + run, letter, run, searched.get(delimiter) ?? 0);
  if (end < 0) return (searched.set(delimiter, -end), run);
  const inside = inline(text.slice(at + run, end), citing, depth + 1);
  const tags = letter === "~" ? ["s"] : TAGS[run];
  const node = tags.reduceRight((content, tag) => [el(tag, null, content)], inside)[0];
  return { node, end: end + run };
}

/** Where emphasis ends: a run of the same length after a letter. Code is skipped. Negative: not before there. */
function ending(text, from, letter, run, searched) {
  const last = Math.min(text.length, from + LOOK_AHEAD);
  for (let at = Math.max(from, searched); at < last;) {
    if (text[at] === "\\") at += 2;
    else if (text[at] === "`") {
      const ticks = /^`+/.exec(text.slice(at, at + 40))[0];
      const end = closing(text, at + ticks.length, ticks);
      at = end < 0 ? at + ticks.length : end + ticks.length;
    } else if (text[at] === letter) {
      let length = 1;
      while (text[at + length] === letter) length++;
      const closes = !isSpace(text[at - 1]) && at > from && (letter !== "_" || !isWord(text[at + length]));
      if (length === run && closes) return at;
      at += length;
    } else at++;
  }
  return -last;
}

const LABEL_END = /[\\[\]]/g;
const TARGET = /\(\s*(<[^<>\n]*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*)(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;

function link(text, at, { citing, depth }, picture) {
  const end = labelEnd(text, at);
  if (end < 0 || depth >= DEEPEST) return 1;
  TARGET.lastIndex = end + 1;
  const target = text[end + 1] === "(" ? TARGET.exec(text.slice(0, end + 1 + LOOK_AHEAD)) : null;
  if (!target) return 1;
  const label = text.slice(at + 1, end);
  const goal = target[1].replace(/^<|>$/g, "").replace(/\\(.)/g, "$1");
  const content = picture ? [`picture: ${label || goal}`] : inline(label, citing, depth + 1);
  return { node: anchor(goal, content.length ? content : [goal], citing), end: end + 1 + target[0].length };
}

function labelEnd(text, at) {
  let open = 0;
  LABEL_END.lastIndex = at;
  for (let found = LABEL_END.exec(text); found && found.index - at < LOOK_AHEAD; found = LABEL_END.exec(text)) {
    if (found[0] === "\\") LABEL_END.lastIndex++;
    else if (found[0] === "[" && ++open > MOST_BRACKETS) return -1;
    else if (found[0] === "[") continue;
    else if (--open === 0) return found.index;
  }
  return -1;
}

function angle(text, at) {
  const found = /^<(?:(br)\s*\/?|((?:https?:\/\/|mailto:)[^\s<>]+))>/i.exec(text.slice(at, at + LOOK_AHEAD));
  if (!found) return 1;
  return { node: found[1] ? el("br") : anchor(found[2], [found[2]]), end: at + found[0].length };
}

function entity(text, at) {
  const found = /^&(amp|lt|gt|quot|apos|nbsp|#39);/.exec(text.slice(at, at + 8));
  return found ? { words: ENTITIES[found[1]], end: at + found[0].length } : 1;
}

function address(text, at) {
  const found = ADDRESS.exec(text.slice(at, at + LOOK_AHEAD));
  if (!found) return 1;
  let goal = found[0].replace(/[.,:;!?*_~]+$/, ""); // punctuation after the link
  while (/[)\]]$/.test(goal) && unbalanced(goal)) goal = goal.slice(0, -1);
  return { node: anchor(goal, [goal]), end: at + goal.length };
}

function unbalanced(goal) {
  const [open, close] = goal.endsWith(")") ? ["(", ")"] : ["[", "]"];
  return goal.split(close).length > goal.split(open).length;
}

/** A link, if its target is allowed; else its text, followed by the target as plain text. */
function anchor(goal, content, citing) {
  const [cited] = citations(goal);
  if (cited?.whole === goal && citing) return el("span", null, content, " ", chip(cited, citing));
  if (/^(?:https?:\/\/|mailto:)/i.test(goal) && URL.canParse(goal)) {
    return el("a", { href: goal, rel: "noopener noreferrer", target: "_blank" }, content);
  }
  if (FILE.test(goal) && !goal.includes("..") && !goal.startsWith("//")) {
    return el("a", { href: `/files?path=${encodeURIComponent(goal.replace(/^\.\//, ""))}` }, content);
  }
  return el("span", null, content, ` (${goal})`);
}

/** Plain text and the citations in it. */
function plain(words, citing) {
  const nodes = [];
  let at = 0;
  for (const cited of citations(words)) {
    if (cited.start > at) nodes.push(document.createTextNode(words.slice(at, cited.start)));
    nodes.push(chip(cited, citing));
    at = cited.start + cited.whole.length;
  }
  if (at < words.length) nodes.push(document.createTextNode(words.slice(at)));
  return nodes;
}

/** Citations like `memory/2026-03-01.md#L4-L9`: found by their end, then read backwards to the start of the path. */
function citations(words) {
  if (!words.includes("#L")) return [];
  const found = [];
  let after = 0;
  for (const mark of words.matchAll(LINES)) {
    let start = mark.index;
    while (start > after && mark.index - start < LONGEST_PATH && /[\w.@~+/-]/.test(words[start - 1])) start--;
    const path = words.slice(start, mark.index);
    if (!FILE.test(path)) continue;
    after = mark.index + mark[0].length;
    found.push({ whole: words.slice(start, after), path, from: mark[1], to: mark[2], start });
  }
  return found;
}

/** A citation as a small number that opens the file at the line. The same source has the same number. */
function chip({ whole, path, from, to }, citing) {
  if (!citing.numbers.has(whole)) citing.numbers.set(whole, citing.numbers.size + 1);
  const number = citing.numbers.get(whole);
  const query = new URLSearchParams({ path, line: from, ...(to ? { to } : {}) });
  const label = `Source ${number}: ${path}, ${to && to !== from ? `lines ${from} to ${to}` : `line ${from}`}`;
  return el("a", { class: "chip cite", href: `/files?${query}`, title: whole, "aria-label": label }, String(number));
}
