// Why a passage was found: one bar for each part of its score, as long as what it added.

import { el } from "../dom.js";

const NAMES = {
  words: "keywords",
  passage: "keywords nearby",
  label: "headings",
  date: "date",
  vector: "embedding",
  recency: "age",
};

/**
 * @param {{ name: string, value: number, weight: number, added: number }[]} factors
 * @param {number} most the largest part of any score of these results, so that bars can be compared
 */
export function explain(factors, most) {
  const rows = factors.map((factor) => {
    const fill = el("span", { class: factor.added < 0 ? "explain-fill less" : "explain-fill" });
    fill.style.width = `${Math.max(factor.added ? 2 : 0, (100 * Math.abs(factor.added)) / (most || 1))}%`;
    const told = `${shown(factor.value)} × ${shown(factor.weight)} = ${shown(factor.added)}`;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, NAMES[factor.name] ?? factor.name),
      el("td", { class: "explain-bar", "aria-hidden": "true" }, el("span", { class: "explain-track" }, fill)),
      el("td", { class: "numeric", title: "value × weight = added to the score" }, told),
    );
  });
  return el(
    "table",
    { class: "explain" },
    el("caption", { class: "visually-hidden" }, "Parts of the score"),
    el(
      "thead",
      { class: "visually-hidden" },
      el(
        "tr",
        {},
        ["part", "bar", "measured × weight = added"].map((name) => el("th", { scope: "col" }, name)),
      ),
    ),
    el("tbody", {}, rows),
  );
}

const shown = (value) => (Math.abs(value) >= 100 ? String(Math.round(value)) : String(Number(value.toFixed(3))));
