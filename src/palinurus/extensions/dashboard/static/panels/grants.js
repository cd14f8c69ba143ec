// Grants: what is allowed for longer than once, and a form to try a rule on past commands before granting it.

import { el } from "../dom.js";
import { twice } from "../dialog.js";
import { wire } from "../wire.js";
import { when } from "./format.js";
import { empty, failure, notice, place, settled } from "./kit.js";
import { chip, field, input, select, sure, table, worker } from "./parts.js";
import { trialView } from "./trial.js";

const SCOPES = [
  ["agent", "this agent"],
  ["home", "every agent"],
];
const LASTING = [
  ["", "default duration"],
  ["1", "one day"],
  ["7", "a week"],
  ["30", "thirty days"],
];

/** @param {import("./kit.js").View} view @param {HTMLElement} page */
export function drawGrants(view, page) {
  const list = place(view, "grants");
  let ended = false;
  const load = () =>
    list.load(
      () => wire.call("approvals.grants", { ended }, { reads: true }),
      (found) => [
        found.grants.length
          ? grantTable(found.grants, load)
          : empty("No grants yet.", "Try a rule above, such as git diff *"),
        el(
          "button",
          {
            type: "button",
            class: "button button-quiet",
            "aria-pressed": String(ended),
            on: {
              click: () => {
                ended = !ended;
                load();
              },
            },
          },
          ended ? "Hide expired" : "Show expired",
        ),
      ],
    );
  page.append(simulator(view, load), el("h2", {}, "Grants"), list.node);
  load();
}

function grantTable(grants, again) {
  const now = Date.now();
  return table(
    "Grants",
    [
      { name: "Rule", cell: (row) => el("code", { title: row.resolved || null }, ruleOf(row)) },
      {
        name: "For",
        cell: (row) =>
          row.scope === "home" ? "every agent" : row.scope === "session" ? row.sessionKey : `agent ${row.agent}`,
      },
      { name: "Granted", cell: (row) => [when(row.createdAt), row.createdBy ? ` by ${row.createdBy}` : ""] },
      {
        name: "Until",
        cell: (row) =>
          row.revokedAt
            ? chip("revoked", "bad")
            : row.expiresAt
              ? row.expiresAt < now
                ? chip("ended")
                : when(row.expiresAt)
              : "revoked",
      },
      {
        name: "Last used",
        cell: (row) =>
          row.lastUsedAt ? el("span", { title: row.lastUsedCommand || null }, when(row.lastUsedAt)) : "never",
      },
      { name: "", cell: (row) => (row.revokedAt ? "" : revoke(row, again)) },
    ],
    grants,
  );
}

function revoke(row, again) {
  const host = el("div", {});
  host.append(
    sure("Revoke", "The agent will need approval again.", "Revoke", async () => {
      try {
        await wire.call("approvals.revoke", { id: row.id });
        await again();
      } catch (error) {
        host.append(failure(error));
      }
    }),
  );
  return host;
}

/** A grant as a person would write it; `*` stands for some text, `**` for any further arguments. */
const ruleOf = (grant) =>
  [grant.tool === "exec" ? grant.binary?.split("/").at(-1) : grant.tool, ...(grant.args ?? [])].join(" ");

/** Tries the rule while typing; only what was tried can be granted. */
function simulator(view, given) {
  const asked = { scope: "agent", days: "" };
  let ready = null; // what was tried last; nothing else can be granted
  const typing = () => {
    ready = null;
    give.disabled = true;
    later();
  };
  const rule = input({ placeholder: "git diff *", class: "field mono", on: { input: typing } });
  const examples = el("textarea", {
    class: "field mono",
    rows: 3,
    spellcheck: false,
    placeholder: "git diff src/a.py\ngit diff src/b.py",
    on: { input: typing },
  });
  const tried = place(view, "tried");
  const give = worker("Grant", grant, "");
  give.disabled = true;
  const later = settled(view, tryIt, 300);
  const params = () => {
    const lines = examples.value
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean);
    return rule.value.trim() ? { rule: rule.value.trim(), agent: view.agent } : { examples: lines, agent: view.agent };
  };
  async function tryIt() {
    const wanted = params();
    if (!wanted.rule && !wanted.examples.length) return tried.show(null);
    const found = await tried.load(
      () => wire.call("approvals.preview", wanted),
      (preview) => [
        preview.rules.length
          ? el(
              "p",
              {},
              "Rule: ",
              preview.rules.map((each) => [
                el("code", {}, each.rule),
                each.remark ? el("span", { class: "quiet" }, ` ${each.remark} `) : " ",
              ]),
            )
          : null,
        trialView(preview.trial),
      ],
    );
    if (!found) return undefined;
    ready = wanted;
    give.disabled = false;
    return undefined;
  }
  async function grant() {
    try {
      const params = { ...ready, scope: asked.scope, ...(asked.days ? { days: Number(asked.days) } : {}) };
      if (!(await twice((yes) => wire.call("approvals.grant", { ...params, ...yes }), "Create this grant?"))) return true;
      rule.value = "";
      examples.value = "";
      tried.show(notice("Granted.", "ok"));
      given();
      return false; // nothing is left to grant
    } catch (error) {
      tried.show(failure(error));
    }
    return true;
  }
  return el(
    "section",
    { class: "card", "aria-label": "Try a rule" },
    el("h2", {}, "Try a rule before you grant it"),
    el(
      "div",
      { class: "fields" },
      field("Rule", rule, "A program and a pattern for each argument: * matches one argument's text, ** any further arguments."),
      field("Or examples, one per line", examples, "The narrowest rule that matches all of them is proposed."),
    ),
    tried.node,
    el(
      "div",
      { class: "flow" },
      select(
        SCOPES,
        asked.scope,
        (value) => {
          asked.scope = value;
        },
        { "aria-label": "For whom" },
      ),
      select(
        LASTING,
        asked.days,
        (value) => {
          asked.days = value;
        },
        { "aria-label": "How long" },
      ),
      give,
    ),
  );
}
