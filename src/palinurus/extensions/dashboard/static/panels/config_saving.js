// The bar below the config form: how many changes there are, what exactly will be written, and the gateway's answer.

import { el } from "../dom.js";
import { newKey } from "../outbox.js";
import { wire } from "../wire.js";
import { count } from "./format.js";
import { failure, notice } from "./kit.js";
import { button, worker } from "./parts.js";
import { patchOf, written } from "./schema.js";

/**
 * @param {any} form see config_edits.js
 * @param {{ redraw: () => void, reload: () => Promise<unknown>, takeUp: (config: any) => void }} page `takeUp`: continue with
 *   the file as it is now and the edits as they are
 */
export function savingBar(form, page) {
  const node = el("div", { class: "config-bar", role: "region", "aria-label": "Changes" });
  const { edits } = form;

  function draw(told = null) {
    const faults = [...edits.values()].filter((edit) => edit.fault).length;
    node.classList.toggle("has-changes", edits.size > 0);
    const parts = told ? [told] : [];
    if (edits.size) {
      const words = faults ? `${count(faults, "field")} must be fixed first` : count(edits.size, "change");
      const save = worker("Review and save", review, "");
      save.disabled = faults > 0;
      parts.push(el("span", { role: "status" }, words), save, button("Discard", giveUp));
    }
    node.replaceChildren(...parts);
  }

  function giveUp() {
    edits.clear();
    page.redraw();
    draw();
  }

  /** Secrets must not be stored in the outbox, so this bypasses it; the idempotency key makes a second sending harmless. */
  function send(dryRun) {
    const changes = [...edits.values()];
    const replacePaths = changes.filter((edit) => Array.isArray(edit.value)).map((edit) => written(edit.path));
    const how = dryRun ? { dryRun } : { idempotencyKey: newKey() };
    const params = { raw: JSON.stringify(patchOf(changes)), baseHash: form.config.hash, replacePaths, ...how };
    return wire.call("config.patch", params, { reads: true, timeout: 60_000 });
  }

  /** The gateway checks everything and writes nothing yet. */
  async function review() {
    try {
      await send(true);
    } catch (error) {
      return refused(error);
    }
    const save = worker("Save", write, "");
    const buttons = el(
      "div",
      { class: "flow" },
      save,
      button("Continue editing", () => draw()),
    );
    const rows = el("ul", {}, [...edits.values()].map(row));
    node.replaceChildren(el("div", { class: "config-review" }, el("h2", {}, "Review changes"), rows, buttons));
    save.focus();
    return undefined;
  }

  function row(edit) {
    const secret = form.shapeAt(edit.path, edit.value).kind === "secret";
    const now = edit.value === undefined ? "removed" : secret ? "a new secret" : shown(edit.value);
    const was = el("del", {}, shown(form.before(edit.path)));
    return el("li", {}, el("code", {}, written(edit.path)), " ", was, " → ", el("ins", {}, now));
  }

  async function write() {
    try {
      const done = await send(false);
      edits.clear();
      await page.reload();
      const said = ["Saved. It takes effect with the next message.", ...(done.warnings ?? [])].join(" ");
      document.querySelector(".config-bar")?.replaceChildren(notice(said, "ok"));
    } catch (error) {
      refused(error);
    }
  }

  function refused(error) {
    if (error.details?.code === "STALE") {
      const again = async () => page.takeUp(await wire.call("config.get"));
      return draw(el("div", {}, failure(error), worker("Reload and keep my changes", again)));
    }
    const place = error.details?.path;
    const edit = place && [...edits.values()].find(({ path }) => written(path) === place || path.join(".") === place);
    if (edit) edit.fault = error.message;
    page.redraw();
    return draw(failure(error));
  }

  form.onChange(() => draw());
  draw();
  return node;
}

const shown = (value) => (value === undefined ? "not set" : typeof value === "string" ? value : JSON.stringify(value));
