// One run over time: a line for each step, when it began, how long it took, and what it waited for.

import { svg } from "../dom.js";
import { duration } from "../panels/format.js";
import { ticks } from "./figure.js";

const END = 64; // pixels for the durations
const ROW = 26;
const HEAD = 24;

/**
 * @typedef {{ name: string, at: number, ms: number | null, kind: "wait" | "model" | "tool" | "person", bad?: boolean,
 *   inside?: { at: number, ms: number, kind: string }[], title: string }} Line times in milliseconds of the run
 * @param {Line[]} lines @param {number} all milliseconds of the whole run @param {number} width pixels
 * @returns {SVGElement}
 */
export function waterfall(lines, all, width) {
  const names = Math.min(190, width * 0.34); // pixels for the names of the steps
  const unit = all >= 120_000 ? 60_000 : 1; // whole minutes, where there are some
  const marks = ticks(Math.max(1, all / unit), width > 520 ? 5 : 2)
    .map((mark) => mark * unit)
    .filter((mark) => mark <= all * 1.001);
  const x = (ms) => names + (Math.min(ms, all) / Math.max(1, all)) * (width - names - END);
  const high = HEAD + lines.length * ROW + 6;
  const grid = marks.map((mark) => [
    svg("line", { class: "grid", x1: x(mark), x2: x(mark), y1: HEAD - 4, y2: high - 4 }),
    svg("text", { class: "axis", x: x(mark), y: 13, "text-anchor": mark === 0 ? "start" : "middle" }, duration(mark)),
  ]);
  return svg(
    "svg",
    { class: "chart waterfall", width, height: high, viewBox: `0 0 ${width} ${high}` },
    grid,
    lines.map((line, at) => row(line, at, x, all, { names, width })),
  );
}

function row(line, at, x, all, size) {
  const top = HEAD + at * ROW;
  const long = line.ms ?? Math.max(0, all - line.at);
  const wide = Math.max(2, x(line.at + long) - x(line.at));
  const classes = [`step-${line.kind}`, line.bad ? "step-bad" : "", line.ms === null ? "step-open" : ""]
    .join(" ")
    .trim();
  return svg(
    "g",
    {},
    svg("title", {}, line.title),
    svg("rect", { class: "hit", x: 0, y: top, width: size.width, height: ROW }),
    svg("text", { class: "waterfall-name", x: 0, y: top + 17 }, cut(line.name, Math.floor(size.names / 6.8))),
    svg("rect", { class: classes, x: x(line.at), y: top + 6, width: wide, height: ROW - 12, rx: 2 }),
    (line.inside ?? []).map((part) =>
      svg("rect", {
        class: `step-${part.kind}`,
        x: x(part.at),
        y: top + 6,
        width: Math.max(1, x(part.at + part.ms) - x(part.at)),
        height: ROW - 12,
        rx: 2,
      }),
    ),
    svg(
      "text",
      { class: "axis", x: Math.min(x(line.at) + wide + 6, size.width - END + 6), y: top + 17 },
      duration(line.ms),
    ),
  );
}

const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
