// What a file, or the whole workspace, was before: commits of git, what each changed, and the way back.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { unifiedView } from "./diff.js";
import { count, when } from "./format.js";
import { failure, notice, place } from "./kit.js";
import { button, chip, sure } from "./parts.js";

const PAGE = 20;

/** @param {import("./kit.js").View} view @param {{ path: string, onRestored: () => void }} asked */
export function history(view, { path, onRestored }) {
  const host = place(view, "history");
  const commits = [];
  let said = null; // about the last restoring
  const load = (before = "") =>
    host.load(
      () => wire.call("workspace.log", { agentId: view.agent, path, limit: PAGE, before }),
      (log) => {
        if (!before) commits.length = 0;
        commits.push(...log.commits);
        return draw(log);
      },
    );

  function draw(log) {
    const name = el("h2", {}, path ? "History" : "History of the workspace");
    if (!log.git)
      return el(
        "section",
        { class: "card" },
        el("div", { class: "card-head" }, name),
        el("p", { class: "quiet" }, log.why || "The workspace has no history: it is no git repository."),
      );
    const open = log.changed && !path ? chip(`${count(log.changed, "file")} not kept yet`, "warn") : null;
    return el(
      "section",
      { class: "card", "aria-label": "History" },
      el("div", { class: "card-head" }, name, open),
      said,
      commits.length
        ? el("ol", { class: "commits" }, commits.map(row))
        : el(
            "p",
            { class: "quiet" },
            path ? "Nothing about this file has been kept yet." : "Nothing has been kept yet.",
          ),
      log.hasMore ? button("Older", () => load(commits.at(-1).id)) : null,
    );
  }

  function row(commit) {
    const told = el("div", { class: "commit-told" });
    const unfold = button("What changed", () => toggle(commit, told, unfold), "quiet", { "aria-expanded": "false" });
    const touched = path
      ? null
      : el(
          "span",
          { class: "quiet" },
          (commit.files ?? [])
            .slice(0, 4)
            .map((file) => file.path ?? file)
            .join(", "),
          (commit.files?.length ?? 0) > 4 ? ` and ${commit.files.length - 4} more` : "",
        );
    return el(
      "li",
      { class: "commit" },
      el(
        "div",
        { class: "commit-head" },
        el("span", { class: "commit-subject" }, commit.subject || "no words"),
        el("span", { class: "quiet" }, when(commit.at), commit.author ? ` by ${commit.author}` : ""),
      ),
      touched,
      el(
        "div",
        { class: "flow" },
        unfold,
        path ? sure("Restore", `${path} becomes what it was then.`, "Restore", () => restore(commit, told)) : null,
      ),
      told,
    );
  }

  async function toggle(commit, told, unfold) {
    if (unfold.getAttribute("aria-expanded") === "true") {
      unfold.setAttribute("aria-expanded", "false");
      return told.replaceChildren();
    }
    unfold.setAttribute("aria-expanded", "true");
    try {
      const diff = await wire.call("workspace.diff", { agentId: view.agent, commit: commit.id, path });
      told.replaceChildren(
        unifiedView(diff.text),
        ...(diff.truncated ? [el("p", { class: "quiet" }, "It is longer than is shown.")] : []),
      );
    } catch (error) {
      told.replaceChildren(failure(error));
    }
  }

  async function restore(commit, told) {
    try {
      const done = await wire.call("workspace.restore", { agentId: view.agent, commit: commit.id, path });
      said = notice(`Restored.${done.backup ? ` What it held until now lies in ${done.backup}.` : ""}`, "ok");
      onRestored();
      load();
    } catch (error) {
      told.replaceChildren(failure(error));
    }
  }

  load();
  return host.node;
}
