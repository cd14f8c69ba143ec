// Usage: tokens and cost per day, stacked by model, the share of the providers' caches, and totals by agent or session.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { money, number } from "./format.js";
import { open, place, resync } from "./kit.js";
import { select, table, tabs } from "./parts.js";
import { usageCharts } from "./usage_charts.js";

export const title = "Usage";

const RANGES = [
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "1 year"],
];
const BY = [
  ["model", "By model"],
  ["agent", "By agent"],
  ["session", "By session"],
];

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "Tokens and cost of all model calls. Prices are in US dollars.");
  const agent = view.asked("agent"); // from the address only: usage is shown for all agents
  const known = RANGES.some(([range]) => range === view.asked("days"));
  let days = known ? Number(view.asked("days")) : 30;
  let by = "model";
  const charts = place(view, "charts");
  const who = place(view, "who");

  const ask = () => wire.call("usage.series", { days, agentId: agent });
  const loadWho = () =>
    who.load(
      () => wire.call("usage.totals", { by, days, agent }),
      (report) => totals(report, by),
    );
  const load = () => {
    charts.load(ask, (found) => usageCharts(found.days, days));
    loadWho();
  };
  const back = (value) => {
    days = Number(value);
    view.remember({ days });
    load();
  };
  view.tools.append(select(RANGES, String(days), back, { "aria-label": "Period" }));
  const strip = tabs("Usage", BY, by, (key, page) => {
    by = key;
    page.append(who.node);
    loadWho();
  });
  view.body.append(charts.node, strip.node);
  load();
  resync(view, load);
  return view.close;
}

function totals(report, by) {
  if (!report.totals.length) return null;
  const named = (row) => (row === report.total ? el("strong", {}, "All") : row.name || "—");
  const cost = (row) => (row.calls && row.unpriced === row.calls ? "unknown" : money(row.cost));
  const tokens = (name, kind) => ({ name, numeric: true, cell: (row) => number(row.usage[kind] ?? 0) });
  const columns = [
    { name: by[0].toUpperCase() + by.slice(1), cell: named },
    { name: "Calls", numeric: true, cell: (row) => number(row.calls) },
    tokens("Input", "input"),
    tokens("Cached input", "cacheRead"),
    tokens("Output", "output"),
    { name: "Cost", numeric: true, cell: cost },
  ];
  return table(`Usage by ${by}`, columns, [...report.totals, report.total]);
}
