// The items of a conversation as they are shown: a line where a day begins, and a sign at the end while nothing else
// says that the agent is at work. Pure.

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
      text: "The connection is lost. What runs goes on when the gateway is back, and is shown here.",
    });
  else if (thread.running.length && !speaksForItself(thread.tail))
    shown.push({ key: "working", type: "working", text: "Working…" });
  return shown;
}

/** A line where a day begins; today needs none when there is nothing before it. */
function withDays(items) {
  const shown = [];
  let until = 0; // the end of the day that we are in
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

/** Words that stream in, a tool that runs and a question to the person show well enough that something goes on. */
function speaksForItself(tail) {
  return tail.some(
    (item) =>
      item.live || (item.type === "tool" && !item.result) || (item.type === "approval" && item.status === "pending"),
  );
}

/** The item that tells an entry of the transcript; of a reply with several parts its words. */
export function itemOf(items, entry) {
  const fitting = items.filter((item) => item.key === entry || item.message === entry);
  return fitting.find((item) => item.type === "text") ?? fitting[0] ?? null;
}

/** Whether an item that was read again looks as it did. */
export function looksAlike(one, other) {
  return (
    ["type", "text", "label", "last", "fresh", "state"].every((field) => one[field] === other[field]) &&
    !one.result === !other.result
  );
}
