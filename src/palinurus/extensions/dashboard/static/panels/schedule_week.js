// A week of due times: drawn as days with their hours, or as a table; and the past due times of one job.

import { el } from "../dom.js";
import { duration, money, when } from "./format.js";
import { empty } from "./kit.js";
import { button, chip, table } from "./parts.js";

const OFTEN = 4; // so many of a day are shown one by one; more of a job that ended alike are one line
const HOUR = 26; // pixels
const LINE = 25; // pixels between two due times: a finger must hit one of them
const TONES = { ran: "ok", failed: "bad", missed: "warn", running: "accent", waiting: "accent", planned: "accent" };
const SIGNS = { ran: "✓", failed: "!", missed: "×", skipped: "–" };
const TIME = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const clock = new Intl.DateTimeFormat("en-GB", TIME);
const moments = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", ...TIME });
const dayName = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric" });
const longDay = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long" });

/** @param {number | string} at @returns {string} Wed 18 Nov, 08:00, in the reader's zone */
export const moment = (at) => moments.format(new Date(at));

/** How a due time ended, how often, and why. */
export function outcome({ status, reason, times }) {
  const words = times ? `${status} ${times}×` : status;
  return [chip(words, TONES[status]), reason ? el("small", { class: "quiet" }, ` ${reason}`) : null];
}

const dayOf = (at) => new Date(at).setHours(0, 0, 0, 0);
const hours = (at) => new Date(at).getHours() + new Date(at).getMinutes() / 60;
const price = ({ cost, forecast }) => (cost ? money(cost) : forecast ? `about ${money(forecast)}` : "");

/** @returns {any[]} entries; `times` and `until` are set where one stands for several */
function joined(entries) {
  const kind = ({ atMs, cronJob, status }) => `${dayOf(atMs)} ${cronJob} ${status}`;
  const sum = (some, name) => some.reduce((all, each) => all + (each[name] ?? 0), 0);
  const lines = [...Map.groupBy(entries, kind).values()].flatMap((some) => {
    if (some.length <= OFTEN) return some;
    const [cost, forecast] = [sum(some, "cost"), sum(some, "forecast")];
    return [{ ...some[0], times: some.length, until: some.at(-1).atMs, cost, forecast }];
  });
  return lines.sort((one, other) => one.atMs - other.atMs);
}

/** @param {any} calendar @param {Date} start @param {(job: string, name: string) => void} choose */
export function week(calendar, start, choose) {
  const now = Date.parse(calendar.now);
  const days = Array.from({ length: 7 }, (_, more) => dayOf(new Date(start).setDate(start.getDate() + more)));
  const lines = joined(calendar.entries);
  const single = lines.filter((each) => !each.times);
  const used = [...single.map((each) => each.atMs), ...(days.includes(dayOf(now)) ? [now] : [])].map(hours);
  const [first, last] = [Math.floor(Math.min(8, ...used)), Math.max(18, ...used.map((hour) => Math.floor(hour) + 1))];
  const of = (some, day) => some.filter((each) => dayOf(each.atMs) === day);
  const high = Math.max((last - first) * HOUR, ...days.map((day) => of(single, day).length * LINE));
  const at = (hour) => ({ top: `${Math.round((hour - first) * HOUR)}px` });

  function column(day) {
    const own = of(single, day);
    let free = first;
    const marks = own.map((each, number) => {
      const most = first + (high - LINE * (own.length - number)) / HOUR; // leaves room for those that follow
      const hour = Math.min(Math.max(hours(each.atMs), free), most);
      free = hour + LINE / HOUR;
      return el("li", { style: at(hour) }, mark(each, choose));
    });
    const often = of(lines, day).filter((each) => each.times);
    const today = day === dayOf(now);
    return el(
      "section",
      { class: "week-day", "aria-label": longDay.format(day), "aria-current": today ? "date" : null },
      el("h3", {}, dayName.format(day)),
      el("ul", { class: "week-often" }, often.map((each) => el("li", {}, mark(each, choose)))),
      el("ul", { class: "week-hours", style: { height: `${high}px` } }, marks, today ? line(at(hours(now))) : null),
      own.length || often.length ? null : el("p", { class: "week-none quiet" }, "Nothing"),
    );
  }
  const line = (style) => el("li", { class: "week-now", "aria-hidden": "true", style });
  const axis = Array.from({ length: last - first }, (_, more) => first + more).filter((hour) => hour % 2 === 0);
  const labels = axis.map((hour) => el("span", { style: at(hour) }, `${String(hour).padStart(2, "0")}:00`));
  const legend = Object.entries(SIGNS).map(([status, sign]) => `${sign} ${status}`);
  const side = el("div", { class: "week-axis", "aria-hidden": "true" }, labels);
  return [el("div", { class: "week" }, side, days.map(column)), el("small", { class: "quiet" }, legend.join(" · "))];
}

/** One due time, or several. */
function mark(entry, choose) {
  const { name, status, reason, times } = entry;
  const at = times ? `${times}×` : clock.format(entry.atMs);
  const words = [`${at} ${name}: ${status}`, reason, price(entry)].filter(Boolean).join(", ");
  const parts = [el("span", {}, at), el("span", { class: "due-name" }, name), el("span", {}, SIGNS[status])];
  const tone = TONES[status] ? `chip-${TONES[status]}` : "";
  const props = { class: `due ${tone}`, title: words, "aria-label": words, "data-hold": `${entry.cronJob} ${entry.at}` };
  return button(parts, () => choose(entry.cronJob, name), "", props);
}

/** The same week as a table. See `week`. */
export function list(calendar, choose) {
  const link = ({ cronJob, name }) => button(name, () => choose(cronJob, name), "", { class: "link" });
  const columns = [
    { name: "Due", cell: ({ atMs, until }) => `${moment(atMs)}${until ? ` to ${clock.format(until)}` : ""}` },
    { name: "Job", cell: link },
    { name: "Outcome", cell: outcome },
    { name: "Cost", numeric: true, cell: price },
  ];
  const lines = joined(calendar.entries);
  return lines.length ? table("Due times of the week", columns, lines) : empty("Nothing is due in this week.", "");
}

/** Past due times of one job, the newest first. @param {string} name @param {any[]} runs */
export function pastRuns(name, runs) {
  const trace = (id) => el("a", { href: `/runs?id=${encodeURIComponent(id)}` }, "Steps");
  const columns = [
    { name: "Due", cell: ({ atMs, byHand, imported }) => [moment(atMs), byHand ? ", by hand" : imported ? ", imported" : ""] },
    { name: "Outcome", cell: (run) => [outcome(run), run.retryAtMs ? [" again ", when(run.retryAtMs)] : null] },
    { name: "Result", class: "clip-cell", cell: ({ text }) => (text ? el("span", { title: text }, text) : null) },
    { name: "Took", numeric: true, cell: ({ durationMs }) => (durationMs ? duration(durationMs) : null) },
    { name: "Cost", numeric: true, cell: price },
    { name: "Run", cell: ({ runId }) => (runId ? trace(runId) : null) },
  ];
  return runs.length ? table(`Past due times of ${name}`, columns, runs) : empty("It has not been due yet.", "");
}
