// Approvals: senders, tool calls and stuck messages that wait for a decision, what was decided, grants, who may use which
// tool, and the audit log of all tool calls.

import { el } from "../dom.js";
import { twice } from "../dialog.js";
import { trust } from "../chat/approval.js";
import { sessionPath } from "../router.js";
import { wire } from "../wire.js";
import { drawAudit } from "./audit.js";
import { ago, when } from "./format.js";
import { deliveryList } from "./deliveries.js";
import { drawGrants } from "./grants.js";
import { calmly, empty, failure, notice, open, place, resync } from "./kit.js";
import { pairingList } from "./pairing.js";
import { chip, table, tabs, worker } from "./parts.js";
import { drawTools } from "./tool_policy.js";
import { trialView } from "./trial.js";

export const title = "Approvals";

const OUTCOMES = {
  "allowed-once": ["allowed once", "ok"],
  "allowed-always": ["allowed always", "ok"],
  denied: ["denied", "bad"],
  expired: ["expired", "warn"],
  unattended: ["denied: nobody could be asked", "warn"],
  abandoned: ["run ended", ""],
};

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(
    root,
    params,
    title,
    "Answer approvals, let senders in, send stuck messages again, manage grants and tool access, review the audit log.",
  );
  if (view.compact) {
    view.body.append(waitingList(view, () => {}).node);
    return view.close;
  }
  const counts = { approvals: 0, pairings: 0, deliveries: 0 };
  const mark = (what) => (n) => {
    counts[what] = n;
    strip?.mark("waiting", counts.approvals + counts.pairings + counts.deliveries);
  };
  const pages = {
    waiting: (page) =>
      page.append(
        pairingList(view, mark("pairings")),
        deliveryList(view, mark("deliveries")),
        waitingList(view, mark("approvals")).node,
      ),
    grants: (page) => drawGrants(view, page),
    tools: (page) => drawTools(view, page),
    audit: (page) => drawAudit(view, page),
  };
  let strip = null;
  strip = tabs(
    "Approvals",
    [
      ["waiting", "Waiting"],
      ["grants", "Grants"],
      ["tools", "Tools"],
      ["audit", "Audit"],
    ],
    view.asked("tab") || "waiting",
    (key, page) => {
      view.remember({ tab: key === "waiting" ? "" : key });
      pages[key](page);
    },
  );
  view.body.append(strip.node);
  return view.close;
}

function waitingList(view, told) {
  const host = place(view, "waiting");
  const load = () =>
    host.load(
      () => wire.call("approvals.list", { session: view.compact ? view.session : "", limit: view.compact ? 5 : 20 }),
      (listed) => {
        told(listed.pending.length);
        return [
          listed.pending.length
            ? listed.pending.map((approval) => card(view, approval, load))
            : empty(
                "No approvals are waiting.",
                "Commands that would run outside the sandbox without a grant appear here and in their session.",
              ),
          listed.settled.length
            ? el("section", {}, el("h2", {}, "Decided"), settled(listed.settled, view.compact))
            : null,
        ];
      },
    );
  load();
  view.onClose(wire.on("approval", calmly(view, load, 150)));
  resync(view, load);
  return { node: host.node };
}

/** One approval, as in the chat: the exact command, what it could touch, and three buttons. */
function card(view, approval, done) {
  const told = el("div", { "aria-live": "polite" });
  const more = place(view, "approval-more");
  const chosen = { rule: "" };
  const deadline = el("span", { class: "quiet" }, `expires ${ago(approval.deadline)}`);
  const clock = setInterval(() => {
    if (!deadline.isConnected) return clearInterval(clock);
    deadline.textContent = approval.deadline > Date.now() ? `expires ${ago(approval.deadline)}` : "expired";
  }, 1000);
  view.onClose(() => clearInterval(clock));
  async function answer(word) {
    try {
      const params = {
        id: approval.id,
        answer: word,
        digest: approval.digest,
        ...(word === "allow-always" && chosen.rule ? { rule: chosen.rule } : {}),
      };
      if (await twice((yes) => wire.call("approvals.answer", { ...params, ...yes }))) await done();
    } catch (error) {
      told.replaceChildren(failure(error));
    }
  }
  const always = worker("Allow always", () => answer("allow-always"), "quiet");
  const node = el(
    "article",
    { class: "card card-coral", "aria-label": `Approval ${approval.id}` },
    el(
      "div",
      { class: "card-head" },
      el("h2", {}, approval.tool === "exec" ? "Allow this command?" : `Allow ${approval.tool}?`),
      deadline,
    ),
    el("pre", { class: "command mono" }, approval.plan.summary),
    el("p", {}, approval.reason),
    trust(approval),
    more.node,
    el(
      "div",
      { class: "flow" },
      worker("Allow once", () => answer("allow-once"), "coral"),
      always,
      worker("Deny", () => answer("deny")),
      el("a", { class: "quiet", href: sessionPath(approval.sessionKey) }, "Open session"),
    ),
    told,
  );
  if (!view.compact)
    more.load(
      () => wire.call("approvals.show", { id: approval.id }),
      (shown) => details(shown, chosen, always),
    );
  return node;
}

function details(shown, chosen, always) {
  if (shown.whyNotAlways) {
    always.disabled = true;
    always.title = shown.whyNotAlways;
  }
  const rules = [["", "only this exact command", 0], ...shown.proposals.map((each) => [each.rule, each.rule, each.examples])];
  const group = `rules-${shown.approval.id}`;
  const choice =
    rules.length > 1
      ? el(
          "fieldset",
          { class: "rules" },
          el("legend", {}, "“Allow always” covers"),
          rules.map(([rule, words, examples], at) => {
            const dot = el("input", {
              type: "radio",
              name: group,
              on: {
                change: () => {
                  chosen.rule = rule;
                },
              },
            });
            dot.checked = at === 0;
            return el(
              "label",
              { class: "tick" },
              dot,
              el("span", { class: rule ? "mono" : "" }, words),
              examples ? el("span", { class: "quiet" }, `matches ${examples} commands allowed before`) : null,
            );
          }),
        )
      : null;
  return [
    el(
      "ul",
      { class: "plan mono" },
      shown.lines.map((line) => el("li", {}, line)),
    ),
    shown.whyNotAlways ? notice(`“Allow always” is not available: ${shown.whyNotAlways}.`) : null,
    shown.always
      ? el(
          "details",
          {},
          el(
            "summary",
            {},
            `It would have allowed ${shown.always.allowed} of ${shown.always.total} earlier commands`,
          ),
          trialView(shown.always),
        )
      : null,
    choice,
  ];
}

function settled(rows, compact) {
  return table(
    "Decided approvals",
    [
      { name: "Command", cell: (row) => el("code", { class: "clip" }, row.plan.summary) },
      { name: "Outcome", cell: (row) => chip(...(OUTCOMES[row.status] ?? [row.status, ""])) },
      ...(compact
        ? []
        : [
            { name: "By", cell: (row) => [row.decidedBy, row.decidedWhere].filter(Boolean).join(", ") },
            { name: "Session", cell: (row) => el("a", { href: sessionPath(row.sessionKey) }, row.sessionKey) },
          ]),
      { name: "When", cell: (row) => when(row.decidedAt ?? row.askedAt) },
    ],
    rows,
  );
}
