// What can be done with a whole session: create, rename, reset, compact, export, delete.

import { ask, complain, confirm, notify } from "./dialog.js";
import { count } from "./format.js";
import { home, sessionTitle } from "./home.js";
import { newKey } from "./outbox.js";
import { go, sessionPath } from "./router.js";
import { agents, session, sessions } from "./state.js";
import { wire } from "./wire.js";

const row = (key) => sessions.value?.find((each) => each.key === key);

/** A key that is not in use yet; the session begins with the first message. */
export function newSession(agent = session.value.split(":")[1] || agents.value.defaultId) {
  go(sessionPath(`agent:${agent}:dashboard:${newKey().slice(0, 12)}`));
}

export async function renameSession(key) {
  const label = await ask({
    title: "Rename session",
    label: "Name",
    value: row(key)?.label ?? sessionTitle(row(key), key),
  });
  if (label === null) return;
  await shown(wire.call("sessions.patch", { key, label: label || null }));
  home.refreshSessions().catch(() => {});
}

export async function resetSession(key) {
  const text = "The messages stay in the transcript, but the agent no longer sees them.";
  if (!(await confirm({ title: "Reset this session?", text, yes: "Reset" }))) return;
  if (await shown(wire.call("sessions.reset", { key }))) notify("Session reset. Earlier messages are kept above the line.");
}

export async function compactSession(key, focus = "") {
  notify("Compacting the session…");
  const done = await shown(wire.call("sessions.compact", { key, focus }));
  if (!done) return;
  if (!done.compacted) return notify(`Not compacted: ${done.reason || "there is nothing to compact yet"}.`);
  notify(`Compacted: ${count(done.tokensBefore)} → ${count(done.tokensAfter)} tokens.`);
}

/** @param {"markdown" | "jsonl"} format */
export async function exportSession(key, format) {
  const file = await shown(wire.call("sessions.export", { sessionKey: key, format }, { reads: true }));
  if (!file) return;
  const address = URL.createObjectURL(new Blob([file.content], { type: file.mediaType }));
  const link = Object.assign(document.createElement("a"), { href: address, download: file.fileName });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export async function deleteSession(key) {
  const text = `“${sessionTitle(row(key), key)}” is removed from the list and its run is stopped. The transcript is archived on this machine.`;
  if (!(await confirm({ title: "Delete this session?", text, yes: "Delete", danger: true }))) return;
  if (!(await shown(wire.call("sessions.delete", { key })))) return;
  sessions.value = sessions.value?.filter((each) => each.key !== key) ?? null;
  if (session.value === key) go("/");
}

/** The same actions for the rail, the bar and the palette. */
export function sessionActions(key) {
  return [
    { label: "Rename", icon: "edit", run: () => renameSession(key) },
    { label: "Reset", icon: "reset", run: () => resetSession(key) },
    { label: "Compact", icon: "compact", run: () => compactSession(key) },
    { label: "Export as Markdown", icon: "download", run: () => exportSession(key, "markdown") },
    { label: "Export as JSON lines", icon: "download", run: () => exportSession(key, "jsonl") },
    { label: "Delete", icon: "trash", danger: true, run: () => deleteSession(key) },
  ];
}

async function shown(promise) {
  try {
    return await promise;
  } catch (error) {
    complain(error);
    return null;
  }
}
