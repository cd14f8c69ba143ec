// Schedule: a calendar of due times, cron jobs and reminders, what they cost, one switch that pauses everything.

import { el } from "../dom.js";
import { complain, confirm, notify } from "../dialog.js";
import { wire } from "../wire.js";
import { money, when } from "./format.js";
import { calmly, empty, open, place, resync } from "./kit.js";
import { button, tabs, tiles } from "./parts.js";
import { jobForm, jobTable } from "./schedule_jobs.js";
import { list, moment, pastRuns, week } from "./schedule_week.js";

export const title = "Schedule";

const MOST = 1000; // due times in one answer
const EXAMPLES = { "Call Ann": "tomorrow at 9", Stretch: "in 20 minutes", "Look back at the week": "every friday at 16" };
const span = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric" });
const offset = new Intl.DateTimeFormat("en-GB", { timeZoneName: "longOffset" });
const { timeZone } = offset.resolvedOptions();
const read = (method, params = {}) => wire.call(method, params, { reads: true });
const calendarOf = (since, until) => read("cron.calendar", { since: since.toJSON(), until: until.toJSON(), limit: MOST });
const later = (day, days) => new Date(day.getFullYear(), day.getMonth(), day.getDate() + days);

/** @returns {Date} the first midnight of the week, of a day such as 2026-11-18 or of today */
function monday(text = "") {
  const asked = new Date(`${text}T12:00:00`);
  const day = Number.isNaN(asked.getTime()) ? new Date() : asked;
  return later(day, -((day.getDay() + 6) % 7));
}

/** What this month has cost, and what the rest of it will. */
async function askMonth() {
  const now = new Date();
  const [first, next] = [0, 1].map((more) => new Date(now.getFullYear(), now.getMonth() + more, 1));
  const [past, coming] = await Promise.all([calendarOf(first, now), calendarOf(now, next)]);
  const { heartbeats: beats } = wire.methods.has("heartbeat.status") ? await read("heartbeat.status") : { heartbeats: [] };
  // Few looks of a heartbeat call a model.
  const shares = new Map(beats.map((beat) => [`heartbeat ${beat.agent}`, beat.calls / Math.max(1, beat.looks)]));
  const cost = ({ forecast, kind, agentId }) => forecast * (shares.get(`${kind} ${agentId}`) ?? 1);
  const seen = coming.cut ? coming.entries.at(-1).atMs - now : next - now; // the rest is like its beginning
  const sum = coming.entries.reduce((all, each) => all + cost(each), 0);
  return { past, coming, beats, forecast: (sum * (next - now)) / Math.max(1, seen) };
}

/** @returns {string} the reader's zone, if it is another one than the home's */
function zoneAbroad({ now }) {
  const own = offset.formatToParts(new Date(now)).find((part) => part.type === "timeZoneName").value.slice(3);
  return (own || "+00:00") === now.slice(-6) ? "" : timeZone;
}

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "What your agents do by themselves: reminders, cron jobs and heartbeats.");
  const [head, sheet, jobs, past] = [place(view), place(view), place(view), place(view)];
  const [form, heading] = [el("div", { class: "opened" }), el("h2", { "aria-live": "polite" })];
  const add = button("Add", () => edit({}), "", { hidden: true });
  const pause = button("Pause everything", () => act("cron.pause"), "quiet", { hidden: true });
  let [start, layout, timer] = [monday(view.asked("week")), view.asked("view"), 0];
  let shown = null; // the newest calendar
  const ask = () => Promise.all([read("cron.list"), read("cron.status"), calendarOf(start, later(start, 7)), askMonth()]);
  const load = () => head.load(ask, draw);

  function draw([{ jobs: all }, status, calendar, month]) {
    shown = calendar;
    const none = !all.length && !calendar.entries.length && start.getTime() === monday().getTime();
    [pause.hidden, sections.hidden, add.hidden] = [status.paused || !all.length, none, !wire.scopes.has("admin")];
    drawSheet();
    redraw(jobs, all.length ? jobTable(all, { run, choices }) : none ? null : teach("No cron jobs or reminders.", edit));
    clearTimeout(timer);
    const next = (status.nextWakeAtMs ?? 0) - Date.now();
    if (next > 0 && next < 2 ** 30) timer = setTimeout(load, next + 1000);
    const facts = none ? teach("Nothing is planned yet.", edit) : figures(all, status, month);
    return [warning(status, () => act("cron.resume")), facts];
  }

  function drawSheet() {
    if (!shown) return;
    const zones = `Times are those of ${timeZone}. This home and its cron expressions are in UTC${shown.now.slice(-6)}.`;
    redraw(sheet, [
      zoneAbroad(shown) ? el("p", { class: "quiet" }, zones) : null,
      layout === "list" ? list(shown, openPast) : week(shown, start, openPast),
      shown.cut ? el("p", { class: "quiet" }, `Only ${MOST} due times are shown.`) : null,
    ]);
  }

  /** Draws anew; the focus stays on the same control. */
  function redraw(area, content) {
    const held = area.node.contains(document.activeElement) ? document.activeElement.dataset.hold : "";
    area.show(content);
    const again = held ? area.node.querySelector(`[data-hold="${CSS.escape(held)}"]`) : null;
    if (held) (again ?? add).focus({ preventScroll: true });
  }

  async function act(method, asked = {}, said = "") {
    const done = await wire.call(method, asked).then(() => true, complain);
    if (done && said) notify(said);
    await load();
  }
  const run = ({ id, name }) => act("cron.run", { id }, `${name} was started.`);

  function choices(job) {
    const beat = job.kind === "heartbeat"; // the config says when it is due
    const method = `${beat ? "heartbeat" : "cron"}.${job.enabled ? "disable" : "enable"}`;
    const asked = beat ? { agent: job.agentId } : { id: job.id };
    const turn = () => (beat && !job.enabled ? beatOn(job) : act(method, asked));
    const own = wire.scopes.has("admin") && !beat;
    const [label, icon] = job.enabled ? ["Disable", "stop"] : ["Enable", "check"];
    return [
      { label: "History", icon: "runs", run: () => openPast(job.id, job.name) },
      wire.methods.has(method) ? { label, icon, run: turn } : null,
      own && job.payload.kind !== "command" ? { label: "Edit", icon: "edit", run: () => edit(job) } : null,
      job.outside && wire.methods.has("cron.approve") ? { label: "Trust its text", icon: "check", run: () => trust(job) } : null,
      own ? { label: "Remove", icon: "trash", danger: true, run: () => remove(job) } : null,
    ];
  }

  /** Says what it will cost first. */
  async function beatOn({ agentId: agent, schedule }) {
    const asked = { agent, every: `${schedule.everyMs / 1000}s` };
    const { forecast } = await read("heartbeat.enable", { ...asked, dryRun: true });
    const cost = forecast.dollars ? `${money(forecast.dollars.low)} to ${money(forecast.dollars.high)}` : "an unknown sum";
    const text = `A model will be called about ${Math.round(forecast.calls.expected)} times a month, for ${cost}.`;
    if (await confirm({ title: "Turn the heartbeat on?", text, yes: "Turn on" })) await act("heartbeat.enable", asked);
  }

  async function trust({ id, name }) {
    const { lines, digest, question } = await read("cron.plan", { id });
    if (await confirm({ title: question, text: lines.join(" · "), yes: "Trust" }))
      await act("cron.approve", { id, digest }, `The text of ${name} is trusted.`);
  }

  async function remove({ id, name }) {
    const about = { title: `Remove ${name}?`, text: "Its past runs stay in the calendar.", yes: "Remove", danger: true };
    if (await confirm(about)) await act("cron.remove", { id }, `${name} was removed.`);
  }

  function edit(job) {
    const done = (saved) => {
      form.replaceChildren();
      add.focus();
      if (!saved) return;
      notify(`${saved.name}: ${saved.nextRunAtMs ? moment(saved.nextRunAtMs) : "saved"}`);
      load();
    };
    form.replaceChildren(jobForm(view, job, zoneAbroad(shown), done));
    form.querySelector("input").focus();
  }

  /** The history of one job; of one that is gone, what the list of all has. */
  function openPast(id, name) {
    view.remember({ job: id, name });
    const ask = () => read("cron.runs", { id }).catch(() => read("cron.runs", { limit: MOST }));
    const close = button("Close", () => (view.remember({ job: "", name: "" }), past.show(null)));
    const words = el("h2", { tabindex: "-1" }, `History of ${name}`);
    return past.load(ask, ({ runs }) => {
      queueMicrotask(() => words.focus());
      const title = el("div", { class: "card-head" }, words, close);
      const own = runs.filter((each) => each.cronJob === id);
      return el("section", { class: "card", "aria-label": words.textContent }, title, pastRuns(name, own));
    });
  }

  function turn(to) {
    start = to;
    heading.textContent = span.formatRange(start, later(start, 6));
    view.remember({ week: start.getTime() === monday().getTime() ? "" : start.toLocaleDateString("sv") });
    load();
  }
  const step = (sign, days, label) => button(sign, () => turn(later(start, days)), "quiet", { "aria-label": label });
  const steps = [step("‹", -7, "Week before"), button("Today", () => turn(monday())), step("›", 7, "Week after")];
  const board = tabs("Calendar", Object.entries({ week: "Week", list: "List" }), layout, (key, page) => {
    view.remember({ view: (layout = key) === "list" ? key : "" });
    page.append(sheet.node);
    drawSheet();
  });
  const top = el("div", { class: "card-head" }, heading, el("div", { class: "flow" }, steps));
  const sections = el("div", { class: "filled", hidden: true }, top, board.node);
  view.tools.append(pause, add);
  view.body.append(head.node, form, sections, jobs.node, past.node);
  turn(start);
  if (view.asked("job")) openPast(view.asked("job"), view.asked("name"));
  const again = calmly(view, load, 1000);
  view.onClose(wire.on("cron", again));
  view.onClose(() => clearTimeout(timer));
  resync(view, again);
  return view.close;
}

function teach(words, edit) {
  const begin = ([name, time]) => button(`${name}, ${time}`, () => edit({ name, when: time, text: name }));
  const tries = Object.entries(EXAMPLES).map((each) => el("li", {}, begin(each)));
  const said = ["Try in a chat: ", el("q", {}, "remind me tomorrow at 9 to call Ann"), ". Or begin with one of these:"];
  return empty(words, null, el("p", {}, said), el("ul", { class: "tries" }, tries));
}

function warning({ enabled, paused }, resume) {
  const link = el("a", { href: "/config?q=cron.enabled" }, "cron.enabled");
  if (!enabled) return el("p", { class: "notice notice-warn" }, "Cron jobs are switched off in the config: ", link, ".");
  const words = el("p", {}, el("strong", {}, "Everything is paused."), " What falls due meanwhile is skipped.");
  const props = { class: "notice notice-warn paused", role: "status" };
  return paused ? el("div", props, words, button("Resume", resume, "")) : null;
}

function figures(all, status, month) {
  const name = new Date().toLocaleString("en-GB", { month: "long" });
  const open = ({ unknown }, known) => (unknown ? `${unknown} of unknown cost` : known);
  const next = status.paused ? 0 : status.nextWakeAtMs;
  const beat = all.find((job) => job.kind === "heartbeat" && job.enabled);
  const seen = ({ remarks, calls, looks }) => remarks[0] || `${calls} of ${looks} looks needed a model`;
  return tiles([
    ["Next", next ? status.nextName : status.paused ? "paused" : "nothing", next ? [when(next), `, ${moment(next)}`] : ""],
    [`Cost in ${name}`, `${month.past.cut ? "at least " : ""}${money(month.past.cost)}`, open(month.past, "so far")],
    ["Forecast", `${month.forecast ? "about " : ""}${money(month.forecast)}`, open(month.coming, `for the rest of ${name}`)],
    ["Heartbeat", beat ? beat.when : "off", month.beats.filter((each) => each.on).map(seen)[0]],
  ]);
}
