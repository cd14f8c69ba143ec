// The audit log of tool calls: a hash chain that shows when somebody has changed it.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { clockTime, count, when } from "./format.js";
import { empty, failure, notice, place, settled } from "./kit.js";
import { button, chip, field, input, table, worker } from "./parts.js";

const PAGE = 50;
const TONES = [
  [/^(error|denied|failed)/, "bad"],
  [/^(ok|allowed)/, "ok"],
];

/** @param {import("./kit.js").View} view @param {HTMLElement} page */
export function drawAudit(view, page) {
  const asked = { tool: view.asked("tool"), run: view.asked("run"), sessionKey: view.session };
  const list = place(view, "audit");
  const told = el("div", { "aria-live": "polite" });
  const later = settled(view, () => load(), 300);
  let rows = [];
  function load(before = 0) {
    return list.load(
      () => wire.call("audit.show", { ...asked, limit: PAGE, before }),
      (found) => {
        rows = before ? [...rows, ...[...found.rows].reverse()] : [...found.rows].reverse();
        return rows.length
          ? [auditTable(rows), found.rows.length === PAGE ? button("Older", () => load(rows.at(-1).seq)) : null]
          : empty(
              "The audit log is empty.",
              "Every tool call, every decision about one and every result is recorded here.",
            );
      },
    );
  }
  async function verify() {
    try {
      const report = await wire.call("audit.verify", {}, { timeout: 300_000 });
      told.replaceChildren(
        report.ok
          ? el(
              "div",
              { class: "notice notice-ok" },
              el(
                "p",
                {},
                `The chain is intact: ${count(report.rows, "row")}${report.erased ? `, ${count(report.erased, "row")} with details erased by a person` : ""}.`,
              ),
              el(
                "p",
                { class: "quiet" },
                "Store its head elsewhere to detect a cut-off end: ",
                el("code", { class: "hash" }, report.head || "empty"),
              ),
            )
          : notice(`The chain is broken${report.broken ? ` at row ${report.broken}` : ""}: ${report.trouble}`, "bad"),
      );
    } catch (error) {
      told.replaceChildren(failure(error, verify));
    }
  }
  const box = (name, placeholder) =>
    input({
      value: asked[name],
      placeholder,
      class: "field mono",
      on: {
        input: (event) => {
          asked[name] = event.target.value.trim();
          later();
        },
      },
    });
  page.append(
    el(
      "div",
      { class: "fields fields-4" },
      field("Tool", box("tool", "exec")),
      field("Run", box("run", "id or its beginning")),
      field("Session", box("sessionKey", "agent:main:main")),
      el("div", { class: "labelled labelled-end" }, worker("Verify chain", verify)),
    ),
    told,
    list.node,
  );
  load();
}

function auditTable(rows) {
  return table(
    "Audit log, newest first",
    [
      { name: "#", numeric: true, cell: (row) => String(row.seq) },
      {
        name: "When",
        cell: (row) =>
          el(
            "span",
            { title: new Date(row.at).toLocaleString() },
            clockTime(row.at),
            " ",
            el("small", { class: "quiet" }, when(row.at)),
          ),
      },
      {
        name: "Event",
        cell: (row) => [el("code", {}, row.tool || row.kind), " ", el("span", { class: "quiet" }, row.kind)],
      },
      {
        name: "Outcome",
        cell: (row) => chip(row.outcome || "—", TONES.find(([like]) => like.test(row.outcome))?.[1] ?? ""),
      },
      {
        name: "Run",
        cell: (row) =>
          row.runId
            ? el("a", { class: "mono", href: `/runs?id=${encodeURIComponent(row.runId)}` }, row.runId.slice(0, 8))
            : "",
      },
      { name: "Details", cell: details },
    ],
    rows,
  );
}

function details(row) {
  if (row.details === null || row.details === undefined) return el("span", { class: "quiet" }, "erased");
  if (!Object.keys(row.details).length) return "";
  const text = el("pre", { class: "mono details" });
  const unfold = el(
    "details",
    {
      on: {
        toggle: () => {
          if (unfold.open && !text.textContent) text.textContent = JSON.stringify(row.details, null, 2);
        },
      },
    },
    el("summary", {}, summaryOf(row.details)),
    text,
  );
  return unfold;
}

/** The detail that says most. */
function summaryOf(found) {
  const said =
    found.plan?.summary ??
    found.command ??
    found.arguments?.path ??
    found.arguments?.command ??
    found.why ??
    found.text ??
    Object.keys(found).join(", ");
  const words = typeof said === "string" ? said : JSON.stringify(said);
  return words.length > 70 ? `${words.slice(0, 69)}…` : words;
}
