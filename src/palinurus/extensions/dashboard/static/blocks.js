// Splits lines of markdown into blocks: paragraphs, lists, tables, code. Pure. Every pattern takes time in proportion to
// the line, whatever the line contains.

const LONG_LIST = 120; // lines drawn as one list
const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
export const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
export const QUOTE = /^ {0,3}> ?/;
export const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( {1,4})(?=\S)|[ \t]+|$)/;
const DIVIDER = /^[ \t:|-]+$/;
const WIDEST_TABLE = 2_000; // characters of a line

/**
 * One block of lines, from `at` on.
 *
 * @returns {{kind: string, lines: string[], end: number, open: boolean, info?: string} | null} `end` is the line after
 *   it; `open`: more text may still belong to it
 */
export function block(lines, at) {
  while (at < lines.length && !lines[at].trim()) at++;
  if (at >= lines.length) return null;
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence);
  if (HEADING.test(line))
    return { kind: "heading", lines: [line], start: at, end: at + 1, open: at + 1 === lines.length };
  if (RULE.test(line)) return { kind: "rule", lines: [line], start: at, end: at + 1, open: at + 1 === lines.length };
  if (QUOTE.test(line)) return until(lines, at, "quote", (next) => !next.trim() || (!QUOTE.test(next) && begins(next)));
  if (ITEM.test(line)) return list(lines, at);
  if (isTable(lines, at)) return until(lines, at, "table", (next) => !next.includes("|"));
  return until(lines, at, "paragraph", (next, index) => !next.trim() || begins(next) || isTable(lines, index));
}

function begins(line) {
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    /^ {0,3}(?:[-*+]|1[.)]) +\S/.test(line)
  );
}

function until(lines, at, kind, ends) {
  let end = at + 1;
  while (end < lines.length && !ends(lines[end], end)) end++;
  return { kind, lines: lines.slice(at, end), start: at, end, open: end === lines.length };
}

function fenced(lines, at, [, indent, ticks, info]) {
  const closes = new RegExp(`^ {0,3}${ticks[0] === "~" ? "~" : "`"}{${ticks.length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !closes.test(lines[end])) end++;
  const inside = lines
    .slice(at + 1, end)
    .map((line) => (indent ? line.replace(new RegExp(`^ {0,${indent.length}}`), "") : line));
  return {
    kind: "code",
    lines: inside,
    start: at,
    end: Math.min(end + 1, lines.length),
    open: end >= lines.length,
    info: info.trim(),
  };
}

function list(lines, at) {
  let end = at + 1;
  const base = /^ */.exec(lines[at])[0].length;
  for (; end < lines.length; end++) {
    const line = lines[end];
    // A long list is drawn in parts, so that streaming does not draw all of it again and again.
    if (end - at >= LONG_LIST && ITEM.exec(line)?.[1].length === base) break;
    if (!line.trim()) {
      let next = end + 1;
      while (next < lines.length && !lines[next].trim()) next++;
      if (next === lines.length) return { kind: "list", lines: lines.slice(at, end), start: at, end: next, open: true };
      if (!lines[next].startsWith("  ") && !ITEM.test(lines[next])) break;
    } else if (!/^ {2,}/.test(line) && !ITEM.test(line) && (begins(line) || !lines[end - 1].trim())) break;
  }
  return { kind: "list", lines: lines.slice(at, end), start: at, end, open: end === lines.length };
}

function isTable(lines, at) {
  const [head, divider = ""] = lines.slice(at, at + 2);
  if (!head.includes("|") || head.length > WIDEST_TABLE || divider.length > WIDEST_TABLE || !DIVIDER.test(divider))
    return false;
  const sides = cells(divider);
  return sides.every((cell) => /^:?-+:?$/.test(cell)) && cells(head).length === sides.length;
}

export function cells(line) {
  const bare = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return bare.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}
