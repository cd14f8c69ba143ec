// The items of a session as they are shown: a line where a day begins, and a sign at the end while a run is working and
// nothing else shows it. Pure.

import { dayName } from "../format.js";

const DAY = 86_400_000;

/** @param {{items: any[], tail: any[], running: string[]}} thread @param {boolean} connected */
export function shownItems(thread, connected) {
  const shown = withDays(thread.items);
  if (thread.goesOn) shown.push({ key: "ended", type: "ended", href: thread.goesOn });
  if (thread.apart) return shown;
  if (thread.running.length && !connected)
    shown.push({
      key: "lost",
      type: "working",
      text: "Connection lost. The run continues and will be shown here when the gateway is back.",
    });
  else if (thread.running.length && !speaksForItself(thread.tail))
    shown.push({ key: "working", type: "working", text: "Working…" });
  return shown;
}

/** A line where a day begins; today has none when nothing comes before it. */
function withDays(items) {
  const shown = [];
  let until = 0; // the end of the current day
  for (const item of items) {
    if (item.timestamp >= until) {
      const name = dayName(item.timestamp);
      until = new Date(item.timestamp).setHours(24, 0, 0, 0);
      if (shown.length || name !== "Today")
        shown.push({ key: `day-${Math.floor(until / DAY)}`, type: "day", label: name });
    }
    shown.push(item);
  }
  return shown;
}

/** Streaming text, a running tool and a waiting approval already show that something is going on. */
function speaksForItself(tail) {
  return tail.some(
    (item) =>
      item.live || (item.type === "tool" && !item.result) || (item.type === "approval" && item.status === "pending"),
  );
}

/** The item of a transcript entry; for a reply with several parts, its text. */
export function itemOf(items, entry) {
  const fitting = items.filter((item) => item.key === entry || item.message === entry);
  return fitting.find((item) => item.type === "text") ?? fitting[0] ?? null;
}

/** Whether an item that was loaded again looks the same. */
export function looksAlike(one, other) {
  return (
    ["type", "text", "label", "last", "fresh", "state"].every((field) => one[field] === other[field]) &&
    !one.result === !other.result
  );
}
