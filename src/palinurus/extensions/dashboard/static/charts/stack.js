// Bars per day, stacked by series.

import { svg } from "../dom.js";
import { SERIES, ticks } from "./figure.js";

const HIGH = 220;
const LEFT = 52;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 26;

/**
 * @param {object} given
 * @param {string[]} given.names of the series, the largest first
 * @param {{ label: string, values: number[] }[]} given.bars one for each day, a value for each series
 * @param {(value: number) => string} given.format @param {number} [given.most] a fixed top of the axis
 * @param {number} width pixels
 * @returns {SVGElement}
 */
export function stack({ names, bars, format, most = 0 }, width) {
  const tops = bars.map((bar) => bar.values.reduce((sum, value) => sum + value, 0));
  const marks = ticks(most || Math.max(0, ...tops));
  const top = most || marks.at(-1);
  const y = (value) => HIGH - BOTTOM - (value / top) * (HIGH - TOP - BOTTOM);
  const step = (width - LEFT - RIGHT) / Math.max(1, bars.length);
  const thick = Math.max(1, Math.min(36, step * 0.72));
  const grid = marks
    .filter((mark) => mark <= top)
    .map((mark) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark) }),
      svg("text", { class: "axis", x: LEFT - 8, y: y(mark) + 4, "text-anchor": "end" }, format(mark)),
    ]);
  const every = Math.max(1, Math.ceil((bars.length * 72) / width));
  const drawn = bars.map((bar, at) => {
    const x = LEFT + step * at + (step - thick) / 2;
    return svg(
      "g",
      {},
      svg("title", {}, described(bar, names, format)),
      svg("rect", { class: "hit", x: LEFT + step * at, y: TOP, width: step, height: HIGH - TOP - BOTTOM }),
      pieces(bar, x, thick, y),
      at % every === 0
        ? svg("text", { class: "axis", x: x + thick / 2, y: HIGH - 8, "text-anchor": "middle" }, shortDay(bar.label))
        : null,
    );
  });
  return svg("svg", { class: "chart", width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}` }, grid, drawn);
}

function pieces(bar, x, width, y) {
  let sum = 0;
  return bar.values.map((value, series) => {
    if (!(value > 0)) return null;
    const bottom = y(sum);
    sum += value;
    return svg("rect", {
      class: `series-${(series % SERIES) + 1}`,
      x,
      width,
      y: y(sum),
      height: Math.max(0.5, bottom - y(sum)),
    });
  });
}

function described(bar, names, format) {
  const parts = bar.values.map((value, at) => (value > 0 ? `${names[at]}: ${format(value)}` : "")).filter(Boolean);
  return [bar.label, ...parts].join("\n") || bar.label;
}

/** 2026-11-05 → 5 Nov */
function shortDay(text) {
  const date = /^\d{4}-\d\d-\d\d$/.test(text) ? new Date(`${text}T12:00:00`) : null;
  return date ? date.toLocaleDateString("en", { day: "numeric", month: "short" }) : text;
}

/** Every day from the first to the last, those without use included. @param {number} days @param {number} [now] */
export function lastDays(days, now = Date.now()) {
  return Array.from({ length: days }, (_, at) => {
    const date = new Date(now);
    date.setDate(date.getDate() - (days - 1 - at));
    return [
      date.getFullYear(),
      String(date.getMonth() + 1).padStart(2, "0"),
      String(date.getDate()).padStart(2, "0"),
    ].join("-");
  });
}
