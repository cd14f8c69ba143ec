// One file of the workspace: read at the cited lines, edited, and compared before it is saved.
//
// Edits are stored in this tab until they are saved or discarded. A file that was changed in between is never
// overwritten silently: both texts are compared and the person decides.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { compare, diffView, summary } from "./diff.js";
import { draftOf, fileText } from "./file_text.js";
import { bytes, when } from "./format.js";
import { empty, failure, notice, place } from "./kit.js";
import { button, chip, worker } from "./parts.js";
import { isOwn, readFile } from "./reading.js";

/**
 * @typedef {object} Asked
 * @property {string} agent @property {string} path @property {number} [line] @property {number} [to]
 * @property {() => void} [onSaved] @property {() => Node} [close] an additional button
 *
 * @param {import("./kit.js").View} view @param {Asked} asked
 */
export function fileView(view, asked) {
  const { agent, path } = asked;
  const host = place(view, "file");
  const drafts = draftOf(asked);
  const load = () =>
    host.load(
      () => readFile(agent, path),
      (file) => read(file),
    );

  function heading(about, ...tools) {
    const name = el("h2", { class: "mono file-name" }, path);
    return el(
      "div",
      { class: "file-head" },
      name,
      el("div", { class: "file-about" }, about),
      el("div", { class: "file-tools" }, tools),
    );
  }

  function read(file, told = null) {
    const draft = drafts.get();
    const start = () => edit(file, draft ?? file.content ?? "");
    const may = isOwn(path) && !file.readOnly;
    const first = may ? button(file.missing ? "Create" : "Edit", start, "") : chip(file.why || "read only");
    const text = file.missing
      ? empty(`${path} does not exist yet.`, may ? "Create it, and the agent reads it with the next message." : "")
      : fileText(file.content ?? "", asked.line, asked.to);
    return [heading(about(file), first, asked.close?.()), told, unsaved(file, draft), text];
  }

  function unsaved(file, draft) {
    if (draft === null || draft === (file.content ?? "")) return null;
    const giveUp = () => {
      drafts.drop();
      load();
    };
    const said = el("p", {}, "You have unsaved changes.");
    const on = button("Continue editing", () => edit(file, draft));
    return el("div", { class: "notice" }, said, on, button("Discard", giveUp));
  }

  function edit(file, text, told = null) {
    // A text box has one kind of line ending; the file keeps its own.
    const ended = (value) => (file.content?.includes("\r\n") ? value.replaceAll("\n", "\r\n") : value);
    const box = el("textarea", { class: "field mono file-box", "aria-label": `Text of ${path}` });
    box.value = text;
    const compareNow = () => review(file, ended(box.value));
    const stop = () => {
      if (ended(box.value) === (file.content ?? "")) drafts.drop();
      host.show(read(file));
    };
    box.addEventListener("input", () => drafts.put(ended(box.value)));
    box.addEventListener("keydown", (event) => {
      const save = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s";
      if (!save && event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      (save ? compareNow : stop)();
    });
    const keys = el("span", { class: "quiet" }, el("kbd", {}, "Ctrl S"), " reviews changes");
    const head = heading([keys], button("Review changes", compareNow, ""), button("Cancel", stop));
    host.show([head, told, box]);
    box.focus();
    box.setSelectionRange(0, 0);
    const high = parseFloat(getComputedStyle(box).lineHeight) || 20;
    if (asked.line) box.scrollTop = Math.max(0, asked.line - 4) * high;
  }

  function review(file, text) {
    const edits = compare(file.content ?? "", text);
    const { added, removed, words } = summary(edits);
    if (!added && !removed) return edit(file, text, notice("Nothing has changed."));
    const save = worker("Save", () => write(file, text), "");
    host.show([
      heading(
        [el("span", {}, words)],
        save,
        button("Continue editing", () => edit(file, text)),
      ),
      diffView(edits),
    ]);
    save.focus();
    return undefined;
  }

  async function write(file, text) {
    try {
      const params = { name: path, content: text, agentId: agent, baseHash: file.hash ?? "" };
      const saved = await wire.call("agents.files.set", params);
      drafts.drop();
      const copy = saved.backup ? ` The previous version is in ${saved.backup}.` : "";
      host.show(read({ content: text, ...saved.file }, notice(`Saved.${copy}`, "ok")));
      host.node.querySelector(".file-tools button")?.focus();
      asked.onSaved?.();
    } catch (error) {
      if (error.details?.code === "STALE") return conflict(text);
      const on = button("Continue editing", () => edit(file, text));
      host.show([heading([], on), failure(error, () => write(file, text))]);
    }
    return undefined;
  }

  async function conflict(text) {
    const now = await readFile(agent, path);
    const take = () => {
      drafts.drop();
      host.show(read(now));
    };
    const said = `${path} has changed since you started. Below: the file now, compared with your version.`;
    host.show([
      heading([chip("changed on disk", "warn")]),
      notice(said, "bad"),
      el(
        "div",
        { class: "flow" },
        worker("Overwrite with mine", () => write(now, text), "coral"),
        button("Edit mine", () => edit(now, text)),
        button("Discard mine", take),
      ),
      diffView(compare(now.content ?? "", text)),
    ]);
  }

  load();
  return { node: host.node, reload: load };
}

function about(file) {
  if (file.missing) return [chip("not created yet")];
  const changed = file.updatedAtMs ? el("span", { class: "quiet" }, "changed ", when(file.updatedAtMs)) : null;
  return [el("span", { class: "quiet" }, bytes(file.size)), changed];
}
