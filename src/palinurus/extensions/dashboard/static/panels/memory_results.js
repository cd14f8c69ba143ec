// Results of a memory search: how complete they are, and each passage with its scores.

import { el } from "../dom.js";
import { explain } from "../charts/explain.js";
import { count, duration, percent } from "./format.js";
import { empty } from "./kit.js";
import { chip } from "./parts.js";

// Words that are not highlighted.
const PLAIN =
  "the and for are was were what where when who why how did does has have had with about that this from our you your";
const UNMARKED = new Set(PLAIN.split(" "));

/**
 * @param {any} answer of memory.search @param {string} query @param {string} agent
 * @param {(event: MouseEvent, result: any) => void} follow what a click on a file does
 * @returns {(Node | null)[]}
 */
export function results(answer, query, agent, follow) {
  if (answer.refused) return [empty("This session may not use memory.", answer.refused)];
  const added = answer.results.flatMap((result) => (result.factors ?? []).map((factor) => Math.abs(factor.added)));
  const how = { words: wordsOf(query), most: Math.max(0, ...added), agent, follow };
  const list = answer.results.map((result, at) => card(result, at, how));
  return [
    freshness(answer),
    list.length
      ? el("ol", { class: "found" }, list)
      : empty("No results.", "Try fewer or other words; names and numbers work best."),
    answer.leftOut
      ? el("p", { class: "quiet" }, `${count(answer.leftOut, "more result")} did not fit.`)
      : null,
  ];
}

function card(result, at, { words, most, agent, follow }) {
  const click = (event) => follow(event, result);
  const file = () => el("a", { class: "found-path mono", href: fileLink(result, agent), on: { click } }, result.path);
  const score = el("span", { class: "found-score", title: "score, within this answer" }, result.score.toFixed(2));
  const head = el(
    "div",
    { class: "found-head" },
    el("span", { class: "found-number" }, String(at + 1)),
    result.source === "sessions" ? sessionLink(result, words, agent) : file(),
    el("span", { class: "quiet" }, linesOf(result)),
    score,
  );
  return el(
    "li",
    { class: "card found-card" },
    head,
    result.under ? el("p", { class: "found-under quiet" }, result.under) : null,
    el("p", { class: "found-text" }, marked(result.snippet, words)),
    result.factors?.length ? explain(result.factors, most) : null,
  );
}

/** @param {{ startLine: number, endLine: number }} result */
export const linesOf = (result) =>
  result.startLine === result.endLine ? `line ${result.startLine}` : `lines ${result.startLine}–${result.endLine}`;

/** The address of a passage. @returns {string} */
export function fileLink(result, agent) {
  const words = new URLSearchParams({ path: result.path, line: result.startLine, to: result.endLine });
  if (agent) words.set("agent", agent);
  return `/files?${words}`;
}

/** How complete the results are, in one line. */
function freshness({ freshness: fresh, mode, tookMs }) {
  const behind = count(fresh.behindCount ?? fresh.behind?.length ?? 0, "file");
  const states = { fresh: "up to date", stale: `${behind} behind`, unswept: "not yet compared with the disk" };
  const partly = fresh.vectors === "partial" ? ` (${percent(fresh.embedded, fresh.pieces)} embedded)` : "";
  return el(
    "p",
    { class: "flow quiet", role: "status" },
    chip(states[fresh.state] ?? fresh.state, fresh.state === "fresh" ? "ok" : "warn"),
    el("span", {}, `${count(fresh.compared, "file")} compared`),
    el("span", {}, mode === "keyword" ? "keywords only" : `keywords and embeddings${partly}`),
    el("span", {}, duration(tookMs)),
    fresh.why ? el("span", {}, fresh.why) : null,
    fresh.behind?.length ? el("span", {}, `not included: ${fresh.behind.join(", ")}`) : null,
  );
}

/** Links to the message of the passage that has most of the words. */
function sessionLink(result, words, agent) {
  const fits = (line) => words.filter((word) => line.toLowerCase().includes(word)).length;
  const counts = result.snippet.split("\n").map(fits);
  const line = result.startLine + counts.indexOf(Math.max(...counts));
  return el("a", { class: "found-path", href: fileLink({ ...result, startLine: line }, agent) }, "a session");
}

function wordsOf(query) {
  const words = query.toLowerCase().split(/[^\p{L}\p{N}]+/u);
  return words.filter((word) => word.length > 2 && !UNMARKED.has(word));
}

/** Highlights the words of the query in the text, or the beginnings of longer ones. */
function marked(text, words) {
  if (!words.length) return text;
  const stems = words.map((word) => word.slice(0, Math.max(3, word.length - 2)));
  const fits = (piece) => stems.some((stem) => piece.toLowerCase().startsWith(stem));
  return text.split(/([\p{L}\p{N}]+)/u).map((piece) => (fits(piece) ? el("mark", {}, piece) : piece));
}
