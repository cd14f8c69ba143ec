// The history of a file or of the whole workspace: git commits, what each changed, and restoring.

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
  let said = null; // about the last restore
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
    const name = el("h2", {}, path ? "History" : "Workspace history");
    if (!log.git)
      return el(
        "section",
        { class: "card" },
        el("div", { class: "card-head" }, name),
        el("p", { class: "quiet" }, log.why || "The workspace has no history because it is not a git repository."),
      );
    const open = log.changed && !path ? chip(`${count(log.changed, "file")} not committed yet`, "warn") : null;
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
            path ? "No commits of this file yet." : "No commits yet.",
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
        el("span", { class: "commit-subject" }, commit.subject || "no message"),
        el("span", { class: "quiet" }, when(commit.at), commit.author ? ` by ${commit.author}` : ""),
      ),
      touched,
      el(
        "div",
        { class: "flow" },
        unfold,
        path ? sure("Restore", `${path} will be replaced by this version.`, "Restore", () => restore(commit, told)) : null,
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
        ...(diff.truncated ? [el("p", { class: "quiet" }, "The diff is too long and was cut off.")] : []),
      );
    } catch (error) {
      told.replaceChildren(failure(error));
    }
  }

  async function restore(commit, told) {
    try {
      const done = await wire.call("workspace.restore", { agentId: view.agent, commit: commit.id, path });
      said = notice(`Restored.${done.backup ? ` The previous version is in ${done.backup}.` : ""}`, "ok");
      onRestored();
      load();
    } catch (error) {
      told.replaceChildren(failure(error));
    }
  }

  load();
  return host.node;
}
