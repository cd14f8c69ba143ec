// A waiting approval: a coral card with the exact command, what it could touch, why it needs approval, and until when.
// The decision names the digest of the plan shown here, so that it cannot approve anything else.

import { el, icon } from "../dom.js";
import { clockTime } from "../format.js";
import { wire } from "../wire.js";
import { isRead } from "./attention.js";

const SETTLED = {
  "allowed-once": "Allowed once",
  "allowed-always": "Allowed always",
  denied: "Denied",
  expired: "Expired: nobody answered in time",
  unattended: "Denied: nobody could be asked",
  abandoned: "The run ended before it was answered",
};
// While the card has the focus, which it gets when nobody is typing, the letter alone is enough; from anywhere in the
// dashboard it is Alt and the letter, and the card says so.
export const KEYS = { y: "allow-once", a: "allow-always", n: "deny" };

export function drawApproval(item, { onAnswer, onWrite, session = "" }) {
  const heading = el("h3", { class: "approval-title", id: `approval-${item.id}` });
  const left = el("span", { class: "approval-left" });
  const buttons = el("div", { class: "approval-buttons" });
  const why = el("p", { class: "quiet approval-why" });
  const command = el(
    "pre",
    { class: "approval-command", tabIndex: 0, role: "group", "aria-label": "Exact command" },
    item.plan.summary,
  );
  const card = el(
    "section",
    { class: "approval", tabIndex: -1, "aria-labelledby": heading.id },
    el("div", { class: "approval-head" }, icon("approve"), heading, left),
    command,
    facts(item),
    trust({ ...item, sessionKey: session }),
    buttons,
    why,
  );
  const node = el("div", { class: "row-approval" }, card);
  const always = choice("Allow always", "a", "button-quiet", "allow-always");
  const timer = setInterval(() => node.isConnected && count(), 1_000);
  buttons.append(
    choice("Allow once", "y", "button-coral", "allow-once"),
    always,
    choice("Deny", "n", "button-quiet", "deny"),
  );

  function choice(label, key, kind, decision) {
    return el(
      "button",
      {
        class: kind,
        type: "button",
        "aria-keyshortcuts": `Alt+${key.toUpperCase()}`,
        on: { click: () => onAnswer(item, decision) },
      },
      label,
      el("kbd", { "aria-hidden": "true" }, key.toUpperCase()),
    );
  }

  function count() {
    const seconds = Math.max(0, Math.round((item.deadline - Date.now()) / 1000));
    if (item.status !== "pending") left.textContent = "";
    else
      left.textContent =
        seconds > 3_600
          ? `until ${clockTime(item.deadline)}`
          : `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`;
  }

  node.update = () => {
    const pending = item.status === "pending";
    heading.textContent = pending
      ? `Allow ${item.plan.tool === "exec" ? "this command" : item.plan.tool}?`
      : (SETTLED[item.status] ?? item.status);
    card.classList.toggle("settled", !pending);
    buttons.hidden = !pending;
    for (const button of buttons.querySelectorAll("button"))
      button.disabled = Boolean(item.answering) || (button === always && Boolean(item.whyNotAlways));
    why.hidden = !pending || !why.textContent;
    count();
    if (!pending) clearInterval(timer);
  };
  card.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || item.status !== "pending") return;
    const decision = KEYS[event.key.toLowerCase()];
    // Do not take the focus from somebody who is typing.
    const unread = event.target === card && !isRead(item);
    if (!decision || unread) return void (event.key.length === 1 && event.key !== " " && onWrite());
    event.preventDefault();
    if (!(decision === "allow-always" && item.whyNotAlways)) onAnswer(item, decision);
  });
  node.addEventListener("forgotten", () => clearInterval(timer));
  node.update();
  if (item.status === "pending") explain(item, why).then(node.update);
  return node;
}

/** What it could touch, in a few words each. */
function facts({ plan, reason, sources = [] }) {
  const programs = (plan.invocations ?? []).map((each) => each.resolved || each.name);
  const rows = [
    ["Where", { host: "on this machine, outside the sandbox", sandbox: "in the sandbox" }[plan.where]],
    ["Folder", plan.cwd],
    ["Network", plan.where ? (plan.network ? "allowed" : "blocked") : ""],
    ["Files", (plan.patterns ?? []).join("; ")],
    ["Programs", programs.join(", ")],
    ["Variables", (plan.env ?? []).length ? plan.env.join(", ") : ""],
    ["Arguments", Object.keys(plan.arguments ?? {}).length ? JSON.stringify(plan.arguments, null, 2) : ""],
    ["Reason", reason],
    ["Untrusted sources", sources.map((source) => source.replace(/^(host|file):/, "")).join(", ")],
  ];
  return el(
    "dl",
    { class: "approval-facts" },
    rows
      .filter(([, words]) => words)
      .map(([name, words]) => [
        el("dt", null, name),
        el("dd", { class: ["Arguments", "Folder", "Programs"].includes(name) ? "mono" : null }, words),
      ]),
  );
}

const TRUSTABLE = /^(host|file|mcp|skill):(.+)$/;

/** The untrusted sources because of which it needs approval, and a button for each to trust it from now on. */
export function trust({ sources = [], sessionKey = "", status }) {
  if (!sources.length || (status && status !== "pending")) return null;
  const row = el("div", { class: "approval-sources", role: "group", "aria-label": "Untrusted sources" });
  for (const source of sources) {
    const [, , name] = TRUSTABLE.exec(source) ?? [];
    if (!name) continue;
    const button = el("button", { class: "button-quiet", type: "button" }, `Trust ${name}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        await wire.call("approvals.trust", { sources: [source], session: sessionKey });
        button.textContent = `${name} is trusted`;
      } catch (error) {
        button.disabled = false;
        button.textContent = `Failed: ${error.message}`;
      }
    });
    row.append(button);
  }
  return row;
}

/** What `always` would allow, or why it is not available. */
async function explain(item, why) {
  try {
    const shown = await wire.call("approvals.show", { id: item.id });
    item.whyNotAlways = shown.whyNotAlways;
    const rules = shown.always?.rules ?? [];
    if (shown.whyNotAlways) why.textContent = `“Allow always” is not available: ${shown.whyNotAlways}`;
    else if (rules.length)
      why.textContent = `“Allow always” covers: ${rules.map((rule) => (typeof rule === "string" ? rule : rule.rule)).join(" · ")}`;
  } catch {
    // the card is complete without it
  }
}
