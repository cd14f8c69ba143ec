// How the index compares with the disk: computed by the gateway each time, never a stored flag.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { bytes, count, number, percent, when } from "./format.js";
import { failure, notice, place } from "./kit.js";
import { chip, meter, sure, table, tiles, worker } from "./parts.js";

const STAGES = { scan: "Looking at files", text: "Indexing words", vectors: "Embedding" };

/** @param {import("./kit.js").View} view @param {{ compact: boolean }} how */
export function health(view, { compact }) {
  const host = place(view, "health");
  const told = el("div", { class: "health-told", "aria-live": "polite" });
  const load = (deep = false) =>
    host.load(
      () => wire.call("memory.status", { agent: view.agent, deep }, { timeout: deep ? 300_000 : 30_000 }),
      (status) => draw(status),
    );

  function draw(status) {
    const differences = status.differenceCount ?? 0;
    const state = !status.enabled
      ? chip("disabled", "bad")
      : status.trouble
        ? chip("error", "bad")
        : differences
          ? chip(`${count(differences, "file")} behind`, "warn")
          : chip(status.deep ? "matches the disk" : "up to date", "ok");
    if (compact)
      return el(
        "p",
        { class: "flow quiet" },
        state,
        el("span", {}, `${count(status.files, "file")}, ${count(status.pieces, "chunk")}`),
      );
    return el(
      "section",
      { class: "card", "aria-labelledby": "index-health" },
      el("div", { class: "card-head" }, el("h2", { id: "index-health" }, "Index"), state),
      status.trouble ? notice(status.trouble, "bad") : null,
      facts(status),
      vectors(status),
      differences ? behind(status) : null,
      skipped(status),
      actions(),
      told,
    );
  }

  function actions() {
    return el(
      "div",
      { class: "flow" },
      worker("Update", () => index(false)),
      worker("Check every file", () => load(true)),
      sure("Rebuild", "All files will be indexed again.", "Rebuild", () => index(true)),
    );
  }

  async function index(force) {
    const bar = el("div", {});
    told.replaceChildren(bar);
    const onItem = ({ progress }) => {
      if (progress)
        bar.replaceChildren(
          el(
            "p",
            { class: "quiet" },
            `${STAGES[progress.stage] ?? progress.stage}: ${number(progress.done)} of ${number(progress.total)}`,
          ),
          meter(progress.done, progress.total, "Progress"),
        );
    };
    try {
      let last = null;
      await wire.call(
        "memory.index",
        { agent: view.agent, force },
        {
          timeout: 0,
          onItem: (item) => {
            if (item.report) last = item.report;
            onItem(item);
          },
        },
      );
      await load();
      told.replaceChildren(notice(last ? reported(last) : "Done.", last?.trouble ? "bad" : "ok"));
    } catch (error) {
      told.replaceChildren(failure(error, () => index(force)));
    }
  }

  load();
  return { node: host.node, reload: () => load() };
}

function facts(status) {
  const from = Object.entries(status.sources ?? {})
    .map(([name, files]) => `${number(files)} ${name}`)
    .join(", ");
  return tiles([
    ["Files", number(status.files), from],
    ["Passages", number(status.passages), count(status.pieces, "chunk")],
    ["Size", bytes(status.indexBytes), `of ${bytes(status.textBytes)} of text`],
    [
      "Last scan",
      when(status.lastSweepAt),
      status.watching ? "files are watched" : "files are not watched",
    ],
  ]);
}

function vectors(status) {
  if (!status.embedder) return el("p", { class: "quiet" }, "Keyword search only; no embedding model is in use.");
  const all = (status.embedded ?? 0) + (status.toEmbed ?? 0);
  const words = `${percent(status.embedded ?? 0, all)} embedded`;
  const shadow = status.shadow
    ? ` Switching to another model: ${number(status.shadowEmbedded ?? 0)} so far.`
    : "";
  return el(
    "div",
    {},
    el("p", {}, words, el("span", { class: "quiet" }, ` with ${status.embedder}.${shadow}`)),
    meter(status.embedded ?? 0, all, words),
  );
}

function behind(status) {
  const rows = status.differences ?? [];
  const more = status.differenceCount - rows.length;
  return el(
    "div",
    {},
    table(
      "Files that differ from the index",
      [
        {
          name: "File",
          cell: (row) => el("a", { class: "mono", href: `/files?path=${encodeURIComponent(row.path)}` }, row.path),
        },
        { name: "Change", cell: (row) => row.what },
      ],
      rows,
    ),
    more > 0 ? el("p", { class: "quiet" }, `and ${count(more, "more file")}`) : null,
  );
}

function skipped(status) {
  if (!status.skipped?.length) return null;
  return el(
    "details",
    {},
    el("summary", {}, `${count(status.skipped.length, "file")} skipped`),
    el(
      "ul",
      {},
      status.skipped.map((each) => el("li", {}, el("span", { class: "mono" }, each.path), ` ${each.reason}`)),
    ),
  );
}

function reported(report) {
  const parts = [
    ["added", report.added],
    ["changed", report.changed],
    ["removed", report.removed],
  ]
    .filter(([, n]) => n)
    .map(([name, n]) => `${number(n)} ${name}`);
  return `${count(report.compared, "file")} compared${parts.length ? `, ${parts.join(", ")}` : ", nothing had changed"}${report.trouble ? `. ${report.trouble}` : "."}`;
}
