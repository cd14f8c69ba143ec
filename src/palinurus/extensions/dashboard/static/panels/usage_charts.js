// Tokens, cost and cache share per day: totals, charts, and the table behind each.

import { el } from "../dom.js";
import { SERIES, figure } from "../charts/figure.js";
import { lastDays, stack } from "../charts/stack.js";
import { compact, count, money, number, percent } from "./format.js";
import { empty } from "./kit.js";
import { table, tiles } from "./parts.js";

const UNUSED = "Send a message to your agent. Every model call is counted here, with its cost if the price is known.";
const NO_COST = "No cost: the models used are free or their price is unknown.";

/** @typedef {{ name: string, calls: number, usage: any, cost: number, unpriced: number }} ModelUse */

/** @param {{ date: string, models: ModelUse[] }[]} found days with use @param {number} days how far back */
export function usageCharts(found, days) {
  const all = found.flatMap((day) => day.models);
  if (!all.length) return empty("No usage yet.", UNUSED);
  const dates = lastDays(days);
  const byDate = new Map(found.map((day) => [day.date, day.models]));
  const tokens = (each) => tokensOf(each.usage);
  const cost = (each) => each.cost;
  return [
    facts(added(all)),
    stacked("Tokens per day", { dates, byDate, all, valueOf: tokens, short: compact, long: number }),
    all.some((each) => each.cost > 0)
      ? stacked("Cost per day", { dates, byDate, all, valueOf: cost, short: dollars, long: money })
      : el("p", { class: "quiet" }, NO_COST),
    cacheShare(dates, byDate),
  ];
}

function facts(sum) {
  const { usage } = sum;
  const priced = sum.unpriced ? `excludes ${count(sum.unpriced, "call")} with unknown price` : "all prices known";
  return tiles([
    ["Tokens", compact(tokensOf(usage)), `${compact(usage.output)} output`],
    ["Cost", money(sum.cost), priced],
    ["Cached", percent(usage.cacheRead, readBy(usage)), "of input tokens"],
    ["Calls", number(sum.calls), ""],
  ]);
}

function stacked(title, { dates, byDate, all, valueOf, short, long }) {
  const names = largest(all, valueOf);
  const own = (name, each) => each.name === name || (name === "others" && !names.includes(each.name));
  const value = (date, name) => total((byDate.get(date) ?? []).filter((each) => own(name, each)).map(valueOf));
  const bars = dates.map((label) => ({ label, values: names.map((name) => value(label, name)) }));
  const sums = bars.map((bar) => total(bar.values));
  const most = sums.indexOf(Math.max(...sums));
  return figure({
    title,
    summary: `Highest on ${dates[most]}: ${long(sums[most])}.`,
    draw: (width) => stack({ names, bars, format: short }, width),
    legend: names,
    table: dayTable(title, bars, names, long),
  });
}

function cacheShare(dates, byDate) {
  const names = ["cached input"];
  const bars = dates.map((label) => {
    const { usage } = added(byDate.get(label) ?? []);
    const read = readBy(usage);
    return { label, values: [read ? (100 * usage.cacheRead) / read : 0], read };
  });
  const used = bars.filter((bar) => bar.read);
  const mean = total(used.map((bar) => bar.values[0])) / (used.length || 1);
  const short = (value) => `${Math.round(value)} %`;
  return figure({
    title: "Cached input",
    summary: `${Math.round(mean)} % on an average day with usage.`,
    draw: (width) => stack({ names, bars, format: short, most: 100 }, width),
    table: dayTable("Share of cached input", bars, names, (value) => `${value.toFixed(1)} %`),
  });
}

function dayTable(caption, bars, names, format) {
  const used = bars.filter((bar) => bar.values.some((value) => value > 0)).reverse();
  const values = names.map((name, at) => ({ name, numeric: true, cell: (bar) => format(bar.values[at]) }));
  return table(caption, [{ name: "Day", cell: (bar) => bar.label }, ...values], used);
}

/** The names with the most; the rest are summed up as one. */
function largest(all, valueOf) {
  const sums = new Map();
  for (const each of all) sums.set(each.name, (sums.get(each.name) ?? 0) + valueOf(each));
  const names = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a));
  return names.length <= SERIES ? names : [...names.slice(0, SERIES - 1), "others"];
}

function added(models) {
  const sum = { calls: 0, cost: 0, unpriced: 0, usage: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 } };
  for (const each of models) {
    sum.calls += each.calls;
    sum.cost += each.cost ?? 0;
    sum.unpriced += each.unpriced ?? 0;
    for (const kind of Object.keys(sum.usage)) sum.usage[kind] += each.usage[kind] ?? 0;
  }
  return sum;
}

/** For an axis: no more digits than needed. */
const dollars = (value) => `$${Number(value.toPrecision(3))}`;
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const readBy = (usage) => usage.input + usage.cacheRead + usage.cacheWrite;
const tokensOf = (usage) => (usage.input ?? 0) + (usage.output ?? 0) + (usage.cacheRead ?? 0) + (usage.cacheWrite ?? 0);
