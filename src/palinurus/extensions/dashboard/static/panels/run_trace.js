// One run: its duration, usage and cost, and its steps over time.

import { el } from "../dom.js";
import { sessionPath } from "../router.js";
import { wire } from "../wire.js";
import { figure } from "../charts/figure.js";
import { waterfall } from "../charts/waterfall.js";
import { compact, count, duration, money, number } from "./format.js";
import { notice } from "./kit.js";
import { button, chip, table, tiles } from "./parts.js";

export const TONES = { ok: "ok", error: "bad", aborted: "warn", running: "accent", waiting: "" };

const LEGEND = [
  ["wait", "waiting"],
  ["model", "model"],
  ["first", "until first token"],
  ["tool", "tool"],
  ["person", "waiting for approval"],
  ["bad", "failed"],
];

let known = null;

/** Model prices, loaded once: US dollars per million tokens, by provider/model. @returns {Promise<Map<string, any>>} */
export function prices() {
  const listed = () => wire.call("models.list", { view: "all" }).catch(() => ({ models: [] }));
  known ??= listed().then(
    ({ models }) => new Map(models.map((model) => [`${model.provider}/${model.id}`, model.cost])),
  );
  return known;
}

/** @param {any} trace of runs.show @param {Map<string, any>} costs */
export function drawRun(trace, costs) {
  const steps = linesOf(trace);
  const models = trace.steps?.filter((step) => step.kind === "model") ?? [];
  const asking = models.reduce((sum, step) => sum + (step.ms ?? 0), 0);
  const came = trace.started ? `${duration(trace.started)} in the queue` : "started at once";
  const waited = trace.status === "waiting" ? "still queued" : came;
  const used = trace.status === "running" ? models.map((step) => step.usage) : [trace.usage];
  const tokens = used.reduce((sum, usage) => sum + tokensOf(usage), 0);
  const written = used.reduce((sum, usage) => sum + (usage?.output ?? 0), 0);
  const kinds = new Set(
    steps.flatMap((step) => [step.bad ? "bad" : step.kind, ...(step.inside ?? []).map((part) => part.kind)]),
  );
  const id = el("h2", { class: "mono" }, trace.runId.slice(0, 12));
  return el(
    "section",
    { class: "card", "aria-label": "Run" },
    el("div", { class: "card-head" }, id, chip(trace.status, TONES[trace.status])),
    trace.error ? notice(trace.error, "bad") : null,
    trace.joined ? notice("This message was answered by another run.") : null,
    tiles([
      ["Duration", duration(trace.ms), waited],
      ["Models", duration(asking), count(models.length, "call")],
      ["Tokens", compact(tokens), `${number(written)} output`],
      ["Cost", cost(models, costs), trace.model || models.at(-1)?.model || "no model"],
    ]),
    figure({
      title: "Timeline",
      summary: `${count(steps.length, "step")} in ${duration(trace.ms)}.`,
      draw: (width) => waterfall(steps, trace.ms || 1, width),
      legend: LEGEND.filter(([kind]) => kinds.has(kind)).map(([kind, name]) => ({ name, class: `step-${kind}` })),
      table: stepTable(steps),
    }),
    trace.leftOut ? el("p", { class: "quiet" }, `${count(trace.leftOut, "more step")} were not stored.`) : null,
    ways(trace),
  );
}

/** The cost of its model calls, as far as prices are known. */
function cost(models, costs) {
  if (!models.length) return money(0);
  let sum = 0;
  for (const { provider, model, usage } of models) {
    const price = costs.get(`${provider}/${model}`);
    if (!price) return "unknown";
    const read = (usage?.cacheRead ?? 0) * (price.cacheRead ?? price.input) + (usage?.input ?? 0) * price.input;
    const put = (usage?.cacheWrite ?? 0) * (price.cacheWrite ?? price.input) + (usage?.output ?? 0) * price.output;
    sum += (read + put) / 1e6;
  }
  return money(sum);
}

/** Links from here. */
function ways(trace) {
  const id = encodeURIComponent(trace.runId);
  const link = (href, words) => el("a", { class: "button button-quiet", href }, words);
  return el(
    "div",
    { class: "flow" },
    link(sessionPath(trace.sessionKey), "Open session"),
    link(`/approvals?tab=audit&run=${id}`, "Audit log"),
    link(`/logs?run=${id}`, "Logs"),
    copyId(trace.runId),
  );
}

function copyId(id) {
  const made = button("Copy id", async () => {
    await navigator.clipboard?.writeText(id).catch(() => {});
    made.textContent = "Copied";
  });
  return made;
}

/** The steps as lines of the chart. Waiting for an approval is a part of the tool's time. */
function linesOf(trace) {
  const lines = [];
  const started = trace.started ?? (trace.status === "waiting" ? trace.ms : 0);
  if (started > 0)
    lines.push({
      name: "queued",
      at: 0,
      ms: started,
      kind: "wait",
      title: `Queued for ${duration(started)}`,
      told: "",
    });
  for (const step of trace.steps ?? []) lines.push(step.kind === "model" ? modelLine(step) : toolLine(step));
  return lines;
}

function modelLine(step) {
  const told = [
    step.firstToken !== undefined && step.firstToken !== null ? `first token after ${duration(step.firstToken)}` : "",
    `${number(tokensOf(step.usage))} tokens`,
    step.usage?.cacheRead ? `${number(step.usage.cacheRead)} cached` : "",
    step.error ? `failed: ${step.error}` : step.stopReason,
    ...(step.notices ?? []),
  ]
    .filter(Boolean)
    .join("; ");
  const thinking = step.firstToken ? [{ at: step.at, ms: step.firstToken, kind: "first" }] : [];
  return {
    name: step.model || step.provider || "model",
    at: step.at,
    ms: step.ms ?? null,
    kind: "model",
    bad: Boolean(step.error),
    inside: thinking,
    told,
    title: `${step.provider}/${step.model}: ${duration(step.ms)}\n${told}`,
  };
}

function toolLine(step) {
  const told = [
    step.where ? { sandbox: "in the sandbox", host: "on the host" }[step.where] : "",
    step.approval ? `${step.approval}${step.approvalMs ? ` after ${duration(step.approvalMs)}` : ""}` : "",
    step.isError ? "failed" : "",
    ...(step.notices ?? []),
  ]
    .filter(Boolean)
    .join("; ");
  const waited = step.approvalMs ? [{ at: step.at, ms: step.approvalMs, kind: "person" }] : [];
  return {
    name: step.name,
    at: step.at,
    ms: step.ms ?? null,
    kind: step.approval === "waiting" ? "person" : "tool",
    bad: Boolean(step.isError),
    inside: waited,
    told,
    title: `${step.name}: ${duration(step.ms)}${told ? `\n${told}` : ""}`,
  };
}

function stepTable(steps) {
  return table(
    "Steps of the run",
    [
      { name: "Step", cell: (row) => row.name },
      {
        name: "Kind",
        cell: (row) =>
          ({ wait: "waiting", model: "model", tool: "tool", person: "tool, waiting for approval" })[row.kind],
      },
      { name: "Start", numeric: true, cell: (row) => duration(row.at) },
      { name: "Duration", numeric: true, cell: (row) => duration(row.ms) },
      { name: "Notes", cell: (row) => row.told },
    ],
    steps,
  );
}

const tokensOf = (usage) =>
  (usage?.input ?? 0) + (usage?.output ?? 0) + (usage?.cacheRead ?? 0) + (usage?.cacheWrite ?? 0);
