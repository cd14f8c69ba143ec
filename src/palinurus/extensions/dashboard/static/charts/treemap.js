// The parts of something as areas: squarified, groups first, their parts inside. Areas are to scale.

import { svg } from "../dom.js";
import { SERIES } from "./figure.js";

const HEAD = 18; // pixels for the name of a group

/**
 * @typedef {{ name: string, value: number, title?: string, href?: string, faded?: boolean }} Part
 * @typedef {{ name: string, parts: Part[] }} Group
 * @typedef {{ x: number, y: number, w: number, h: number }} Box
 */

/**
 * Place values in a box, as square as possible (Bruls, Huizing, van Wijk). Pure.
 * @template {{ value: number }} T
 * @param {T[]} items @param {Box} box @returns {{ item: T, box: Box }[]}
 */
export function squarify(items, box) {
  const left = items.filter((item) => item.value > 0).sort((a, b) => b.value - a.value);
  const all = left.reduce((sum, item) => sum + item.value, 0);
  const placed = [];
  if (!all || box.w <= 0 || box.h <= 0) return placed;
  const scale = (box.w * box.h) / all;
  let rest = { ...box };
  while (left.length) {
    const side = Math.min(rest.w, rest.h);
    const row = [left.shift()];
    while (left.length && worst([...row, left[0]], side, scale) <= worst(row, side, scale)) row.push(left.shift());
    rest = lay(row, rest, scale, placed);
  }
  return placed;
}

/** The worst aspect ratio in a row of this length. */
function worst(row, side, scale) {
  const areas = row.map((item) => item.value * scale);
  const sum = areas.reduce((total, area) => total + area, 0);
  return Math.max((side * side * Math.max(...areas)) / (sum * sum), (sum * sum) / (side * side * Math.min(...areas)));
}

/** Put a row along the shorter side; returns the rest of the box. */
function lay(row, box, scale, placed) {
  const sum = row.reduce((total, item) => total + item.value, 0) * scale;
  const wide = box.w >= box.h;
  const depth = sum / (wide ? box.h : box.w);
  let at = 0;
  for (const item of row) {
    const length = (item.value * scale) / depth;
    placed.push({
      item,
      box: wide ? { x: box.x, y: box.y + at, w: depth, h: length } : { x: box.x + at, y: box.y, w: length, h: depth },
    });
    at += length;
  }
  return wide
    ? { x: box.x + depth, y: box.y, w: box.w - depth, h: box.h }
    : { x: box.x, y: box.y + depth, w: box.w, h: box.h - depth };
}

/**
 * @param {Group[]} groups in the order of their colours @param {{ width: number, height: number }} size
 * @returns {SVGElement}
 */
export function treemap(groups, { width, height }) {
  const sums = groups.map((group, at) => ({
    group,
    at,
    value: group.parts.reduce((sum, part) => sum + part.value, 0),
  }));
  const outer = squarify(sums, { x: 0, y: 0, w: width, h: height });
  return svg(
    "svg",
    { class: "chart treemap", width, height, viewBox: `0 0 ${width} ${height}` },
    outer.map(({ item, box }) => drawGroup(item, box)),
  );
}

function drawGroup({ group, at }, box) {
  const inside = { x: box.x + 1, y: box.y + 1, w: box.w - 2, h: box.h - 2 };
  const named = inside.h > HEAD * 2 && inside.w > 50;
  const parts = named ? { ...inside, y: inside.y + HEAD, h: inside.h - HEAD } : inside;
  return svg(
    "g",
    { class: `group-${(at % SERIES) + 1}` },
    named ? label(group.name, { ...inside, h: HEAD }, "treemap-head") : null,
    squarify(group.parts, parts).map(({ item, box: place }) => drawPart(item, place)),
  );
}

function drawPart(part, box) {
  const rect = svg("rect", {
    class: part.faded ? "treemap-part faded" : "treemap-part",
    x: box.x + 0.5,
    y: box.y + 0.5,
    width: Math.max(0, box.w - 1),
    height: Math.max(0, box.h - 1),
    rx: 2,
  });
  return svg(
    "g",
    {},
    svg("title", {}, part.title ?? part.name),
    rect,
    box.w > 40 && box.h > 16 ? label(part.name, box, "treemap-name") : null,
  );
}

/** Text cut to the width of its box. About seven pixels per letter at this size. */
function label(text, box, name) {
  const room = Math.floor((box.w - 10) / 6.9);
  if (room < 3) return null;
  const words = text.length <= room ? text : `${text.slice(0, room - 1)}…`;
  return svg("text", { class: name, x: box.x + 5, y: box.y + 13 }, words);
}
