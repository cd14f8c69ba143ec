// A chart with its caption, its legend and the table behind it, which anybody can open and screen readers are told
// about.

import { el, svg } from "../dom.js";

export const SERIES = 6; // distinct colours; further series are drawn as one

/**
 * @param {object} parts
 * @param {string} parts.title @param {string} parts.summary one sentence that says what the chart shows
 * @param {(width: number) => SVGElement} parts.draw draws the chart for this width @param {HTMLElement} parts.table
 * @param {(string | { name: string, class: string })[]} [parts.legend] names in the order of their colours, or with them
 */
export function figure({ title, summary, draw, table, legend = [] }) {
  const keys = legend.map((key, at) =>
    el("li", {}, swatch(key.class ?? `series-${(at % SERIES) + 1}`), key.name ?? key),
  );
  return el(
    "figure",
    { class: "figure" },
    el("figcaption", {}, el("h2", {}, title), el("p", { class: "quiet" }, summary)),
    keys.length > 1 ? el("ul", { class: "legend", "aria-hidden": "true" }, keys) : null,
    hosted(draw, `${title}. ${summary} The numbers are in the table below.`),
    el("details", { class: "behind" }, el("summary", {}, "Show as a table"), table),
  );
}

/** Draws for the available width, and again when it changes, so that text keeps its size. */
function hosted(draw, name) {
  const host = el("div", { class: "chart-host" });
  let drawn = 0;
  const fit = () => {
    const width = Math.max(240, Math.floor(host.clientWidth));
    if (width === drawn || !host.clientWidth) return;
    drawn = width;
    const chart = draw(width);
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", name);
    host.replaceChildren(chart);
  };
  new ResizeObserver(fit).observe(host);
  return host;
}

/** A square in the colour of a class. */
const swatch = (name) =>
  svg(
    "svg",
    { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" },
    svg("rect", { width: 10, height: 10, rx: 2, class: name }),
  );

/**
 * Round values for an axis, from zero to at least the maximum.
 * @param {number} most @param {number} [steps] about so many @returns {number[]}
 */
export function ticks(most, steps = 4) {
  if (!(most > 0)) return [0, 1];
  const rough = most / steps;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) * power;
  const found = [];
  for (let at = 0; at < most + step * 0.999; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}
