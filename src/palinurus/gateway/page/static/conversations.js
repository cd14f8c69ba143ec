// What can be done with a whole conversation: begin one, name it, start it over, sum it up, take it along, end it.

import { ask, complain, confirm, notify } from "./dialog.js";
import { count } from "./format.js";
import { house, sessionTitle } from "./house.js";
import { newKey } from "./outbox.js";
import { go, sessionPath } from "./router.js";
import { agents, session, sessions } from "./state.js";
import { wire } from "./wire.js";

const row = (key) => sessions.value?.find((each) => each.key === key);

/** A key that nobody has spoken under yet; the session begins with the first message. */
export function newConversation(agent = session.value.split(":")[1] || agents.value.defaultId) {
  go(sessionPath(`agent:${agent}:dashboard:${newKey().slice(0, 12)}`));
}

export async function rename(key) {
  const label = await ask({
    title: "Rename the conversation",
    label: "Name",
    value: row(key)?.label ?? sessionTitle(row(key), key),
  });
  if (label === null) return;
  await told(wire.call("sessions.patch", { key, label: label || null }));
  house.refreshSessions().catch(() => {});
}

export async function startOver(key) {
  const text = "What was said stays in the transcript; the agent begins afresh.";
  if (!(await confirm({ title: "Start this conversation over?", text, yes: "Start over" }))) return;
  if (await told(wire.call("sessions.reset", { key }))) notify("Started over. What was said is kept above the line.");
}

export async function sumUp(key, focus = "") {
  notify("Summing the conversation up…");
  const done = await told(wire.call("sessions.compact", { key, focus }));
  if (!done) return;
  if (!done.compacted) return notify(`Nothing was summed up: ${done.reason || "there is nothing to sum up yet"}.`);
  notify(`Summed up: ${count(done.tokensBefore)} → ${count(done.tokensAfter)} tokens.`);
}

/** @param {"markdown" | "jsonl"} format */
export async function takeAlong(key, format) {
  const file = await told(wire.call("sessions.export", { sessionKey: key, format }, { reads: true }));
  if (!file) return;
  const address = URL.createObjectURL(new Blob([file.content], { type: file.mediaType }));
  const link = Object.assign(document.createElement("a"), { href: address, download: file.fileName });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export async function end(key) {
  const text = `“${sessionTitle(row(key), key)}” leaves the list, and what runs in it is stopped. Its words are archived on this machine.`;
  if (!(await confirm({ title: "Delete this conversation?", text, yes: "Delete", danger: true }))) return;
  if (!(await told(wire.call("sessions.delete", { key })))) return;
  sessions.value = sessions.value?.filter((each) => each.key !== key) ?? null;
  if (session.value === key) go("/");
}

/** The same choices for the rail, the bar and the palette. */
export function choicesFor(key) {
  return [
    { label: "Rename", icon: "edit", run: () => rename(key) },
    { label: "Start over", icon: "reset", run: () => startOver(key) },
    { label: "Sum up (compact)", icon: "compact", run: () => sumUp(key) },
    { label: "Export as Markdown", icon: "download", run: () => takeAlong(key, "markdown") },
    { label: "Export as JSON lines", icon: "download", run: () => takeAlong(key, "jsonl") },
    { label: "Delete", icon: "trash", danger: true, run: () => end(key) },
  ];
}

async function told(promise) {
  try {
    return await promise;
  } catch (error) {
    complain(error);
    return null;
  }
}
