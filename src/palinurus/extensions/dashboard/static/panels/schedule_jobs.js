// Cron jobs and reminders: the table with what can be done to each, and the form that adds or changes one.

import { clear, el, icon } from "../dom.js";
import { openMenu } from "../dialog.js";
import { agents } from "../state.js";
import { wire } from "../wire.js";
import { money, when } from "./format.js";
import { failure, sentence, settled } from "./kit.js";
import { button, chip, field, input, select, table, worker } from "./parts.js";
import { moment, outcome } from "./schedule_week.js";

const KINDS = Object.entries({ reminder: "Remind me", agent: "Ask the agent" });
const SESSIONS = Object.entries({ isolated: "a session of its own", main: "the main session" });

/** @param {any[]} jobs @param {{ run: (job: any) => void, choices: (job: any) => any[] }} does */
export function jobTable(jobs, does) {
  const chips = ({ kind, enabled, outside }) => [
    kind === "cron" ? null : chip(kind),
    enabled ? null : chip("disabled", "warn"),
    outside ? chip("text from outside", "warn") : null,
  ];
  const named = (job) => [
    el("div", { class: "flow" }, el("strong", {}, job.name), chips(job)),
    el("div", { class: "quiet" }, job.text),
    job.disabledWhy ? el("div", { class: "error-text" }, sentence(`it ${job.disabledWhy}`)) : null,
  ];
  const last = (job) => [outcome({ status: job.lastStatus, reason: job.lastError }), " ", when(job.lastRunAtMs)];
  function tools(job) {
    const [label, hold] = [`Actions for ${job.name}`, { "aria-expanded": "false", "data-hold": `more:${job.id}` }];
    const menu = { class: "button-icon", "aria-haspopup": "menu", "aria-label": label, ...hold };
    const more = button(icon("more"), () => openMenu(more, does.choices(job), { label }), "", menu);
    const props = { "aria-label": `Run now: ${job.name}`, "data-hold": `run:${job.id}` };
    return el("div", { class: "job-tools" }, button("Run now", () => does.run(job), "quiet", props), more);
  }
  const columns = [
    { name: "Job", cell: named },
    { name: "When", cell: (job) => job.when },
    { name: "Next", cell: (job) => (job.nextRunAtMs ? when(job.nextRunAtMs) : null) },
    { name: "Last", cell: (job) => (job.lastStatus ? last(job) : null) },
    { name: "Cost so far", numeric: true, cell: ({ cost }) => (cost === null ? "unknown" : cost ? money(cost) : null) },
    { name: "", cell: tools },
  ];
  return table("Cron jobs and reminders", columns, jobs, (job) => ({ "data-job": job.id }));
}

/** What a job is due at, as one would type it. */
const typed = ({ schedule: { expr, at }, when: words }) =>
  expr ?? (at ? new Date(at).toLocaleString("sv").slice(0, 16) : words);

/**
 * @param {import("./kit.js").View} view @param {any} job to change, or without an id: what to begin with
 * @param {string} zone of typed times; empty: the home's @param {(saved: any) => void} done null: cancelled
 */
export function jobForm(view, job, zone, done) {
  const old = job.id ? job : null;
  const before = old ? typed(old) : "";
  const tz = old?.schedule.kind === "cron" ? (old.schedule.tz ?? "") : zone;
  const target = old?.sessionTarget ?? "isolated";
  const targets = SESSIONS.some(([value]) => value === target) ? SESSIONS : [...SESSIONS, [target, target]];
  const known = agents.value.agents.map((each) => [each.id, each.identity?.name || each.name || each.id]);
  let schedule = null;
  const name = input({ value: job.name ?? "", maxLength: 120, placeholder: "Call Ann" });
  const on = { input: settled(view, preview) };
  const time = input({ value: before || (job.when ?? ""), maxLength: 100, placeholder: "tomorrow at 9", on });
  const value = old?.payload.message ?? old?.payload.text ?? job.text ?? "";
  const text = el("textarea", { class: "field", rows: 3, maxLength: 8000, value });
  const kind = select(KINDS, old && old.kind !== "reminder" ? "agent" : "reminder", () => show());
  const session = select(targets, target, () => {});
  const agent = select(known, old?.agentId ?? agents.value.defaultId, () => {});
  const where = field("In", session, "Only the main session knows what was said there before.");
  const show = () => (where.hidden = kind.value === "reminder");
  const [times, told] = [0, 1].map(() => el("div", { class: "job-times", "aria-live": "polite" }));

  /** Shows when it would be due. */
  async function preview() {
    const asked = time.value.trim();
    const tell = (...content) => (time.value.trim() === asked ? clear(times, content) : null);
    schedule = null;
    if (!asked || asked === before) return tell();
    try {
      const found = await wire.call("cron.preview", { when: asked, tz });
      if (time.value.trim() === asked) ({ schedule } = found);
      return tell(el("p", {}, sentence(found.when)), el("ol", {}, found.times.map((at) => el("li", {}, moment(at)))));
    } catch (error) {
      return tell(el("p", { class: "field-fault" }, [error.message, error.hint || ""].map(sentence).join(" ")));
    }
  }

  async function save() {
    await preview();
    const missing = [name, time, text].find((each) => !each.value.trim());
    if (missing) return missing.focus();
    if (!schedule && time.value.trim() !== before) return time.focus();
    const [reminder, words] = [kind.value === "reminder", text.value.trim()];
    const payload = reminder ? { kind: "reminder", text: words } : { kind: "agentTurn", message: words };
    const sessionTarget = reminder && old?.kind !== "reminder" ? "main" : session.value;
    const made = { name: name.value.trim(), agentId: agent.value, payload, sessionTarget, ...(schedule && { schedule }) };
    const call = old ? wire.call("cron.update", { id: old.id, patch: made }) : wire.call("cron.add", made);
    return call.then(done, (error) => clear(told, failure(error)));
  }

  show();
  preview();
  const keep = worker(old ? "Save" : "Add", save, "", { type: "submit" });
  const label = old ? `Change ${old.name}` : "Add a reminder or cron job";
  return el(
    "form",
    { class: "card", "aria-label": label, on: { submit: (event) => event.preventDefault() } },
    el("h2", {}, label),
    el(
      "div",
      { class: "fields" },
      field("Name", name),
      field("What", kind, "A reminder needs no model and costs nothing."),
      field("When", time, "“in 20 minutes”, “every weekday at 8”, or a cron expression such as 0 8 * * 1-5"),
      times,
      known.length > 1 ? field("Agent", agent) : null,
      where,
    ),
    field("Text", text),
    el("div", { class: "flow" }, keep, button("Cancel", () => done(null))),
    told,
  );
}
