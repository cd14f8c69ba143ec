// Context: the parts of the next request to the model, as areas and as a table; tokens, price, and how much of it the
// provider's cache can serve because it stays the same from request to request.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { figure } from "../charts/figure.js";
import { treemap } from "../charts/treemap.js";
import { compact as short, count, money, number, percent } from "./format.js";
import { calmly, open, place, resync } from "./kit.js";
import { meter, select, table, tiles } from "./parts.js";

export const title = "Context";

const GROUPS = ["Instructions", "Workspace files", "Tools", "Messages"];

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "What the next request sends to the model, and what it costs.");
  let session = view.session || view.atHand;
  const shown = place(view, "context");
  const load = () => shown.load(() => wire.call("context.show", { sessionKey: session }), draw);
  if (!view.compact)
    chooser(view, session, (key) => {
      session = key;
      view.remember({ session: key });
      load();
    });
  view.body.append(shown.node);
  load();
  const again = calmly(view, load, 1500);
  view.onClose(
    wire.on("chat", (event) => {
      if (event.state !== "delta" && (!session || event.sessionKey === session)) again();
    }),
  );
  resync(view, load);
  return view.close;
}

async function chooser(view, session, change) {
  const listed = await wire.call("sessions.list", { limit: 100, includeDerivedTitles: true }).catch(() => null);
  if (!listed || !view.alive()) return;
  const choices = listed.sessions.map((row) => [row.key, row.label || row.derivedTitle || row.key]);
  if (session && !choices.some(([key]) => key === session)) choices.unshift([session, session]);
  view.tools.append(select([["", "Main session"], ...choices], session, change, { "aria-label": "Session" }));
}

function draw(report) {
  const groups = grouped(report);
  const rows = groups.flatMap((group) => group.parts.map((part) => ({ ...part, group: group.name })));
  const sum = rows.reduce((total, row) => total + row.value, 0);
  const cacheable =
    report.cacheableTokens ??
    rows.filter((row) => row.group !== "Messages").reduce((total, row) => total + row.value, 0);
  const largest = [...rows].sort((a, b) => b.value - a.value)[0];
  return [
    facts(report, sum, cacheable),
    el(
      "div",
      { class: "context-window" },
      meter(
        report.totalTokens,
        report.window,
        `${percent(report.totalTokens, report.window)} of the context window used`,
        report.totalTokens > 0.8 * report.window ? "meter-warn" : "",
      ),
      el(
        "p",
        { class: "quiet" },
        `${number(report.totalTokens)} of ${number(report.window)} tokens of the context window of ${report.model}${report.counted ? ", counted by the provider" : ", estimated"}`,
      ),
    ),
    figure({
      title: "Parts of the request",
      summary: largest
        ? `${count(rows.length, "part")}; the largest is ${largest.name} (${percent(largest.value, sum)}).`
        : "Empty.",
      draw: (width) => treemap(groups, { width, height: width < 480 ? 300 : 380 }),
      legend: groups.map((group) => group.name),
      table: parts(rows, sum),
    }),
    report.epochReason
      ? el("p", { class: "quiet" }, `The start of the request was last rebuilt: ${report.epochReason}.`)
      : null,
  ];
}

function facts(report, sum, cacheable) {
  const price = report.price ?? null;
  const tokens = report.totalTokens || sum;
  const share = sum ? cacheable / sum : 0;
  const plain = price ? (tokens * price.input) / 1e6 : null;
  const cached = price
    ? (tokens * share * (price.cacheRead ?? price.input) + tokens * (1 - share) * price.input) / 1e6
    : null;
  return tiles([
    ["Tokens", short(tokens), `${percent(tokens, report.window)} of the context window`],
    ["Cacheable", percent(cacheable, sum), "stays the same from request to request"],
    [
      "Next request",
      price ? money(cached) : "unknown",
      price ? `${money(plain)} without the cache; excludes the reply` : report.model,
    ],
    ["Messages", number(report.messages), count(report.messageTokens, "token")],
  ]);
}

/** The parts of the prompt by kind. */
function grouped(report) {
  const groups = new Map(GROUPS.map((name) => [name, []]));
  for (const part of report.parts) {
    const [group, name] = part.name.startsWith("tool ")
      ? ["Tools", part.name.slice(5)]
      : /\.\w{1,5}$|\//.test(part.name)
        ? ["Workspace files", part.name]
        : ["Instructions", part.name];
    const cut = part.truncated ? `, cut: ${number(part.injected)} of ${number(part.raw)} characters` : "";
    groups.get(group).push({
      name,
      value: part.tokens,
      raw: part.raw,
      sent: part.injected,
      truncated: part.truncated,
      title: `${name}: ${number(part.tokens)} tokens${cut}`,
    });
  }
  const said = report.said?.length
    ? report.said
    : [{ name: "messages", tokens: report.messageTokens, count: report.messages }];
  for (const each of said)
    groups.get("Messages").push({
      name: each.name,
      value: each.tokens,
      title: `${each.name}: ${number(each.tokens)} tokens in ${count(each.count, "message")}`,
    });
  return [...groups]
    .map(([name, list]) => ({ name, parts: list }))
    .filter((group) => group.parts.some((part) => part.value > 0));
}

function parts(rows, sum) {
  return table(
    "Parts of the prompt",
    [
      {
        name: "Part",
        cell: (row) =>
          row.group === "Workspace files"
            ? el("a", { class: "mono", href: `/files?path=${encodeURIComponent(row.name)}` }, row.name)
            : row.name,
      },
      { name: "Kind", cell: (row) => row.group },
      { name: "Characters", numeric: true, cell: (row) => (row.raw === undefined ? "" : number(row.raw)) },
      {
        name: "Sent",
        numeric: true,
        cell: (row) => (row.sent === undefined ? "" : `${number(row.sent)}${row.truncated ? " (cut)" : ""}`),
      },
      { name: "Tokens", numeric: true, cell: (row) => number(row.value) },
      { name: "Share", numeric: true, cell: (row) => percent(row.value, sum) },
    ],
    [...rows].sort((a, b) => b.value - a.value),
  );
}
