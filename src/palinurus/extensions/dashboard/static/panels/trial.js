// What a rule would have allowed of this home's past commands, shown before it is granted.

import { el } from "../dom.js";
import { number, when } from "./format.js";
import { meter } from "./parts.js";

/** @param {{ rules: string[], remarks: string[], total: number, allowed: number, examples: any[], sensitiveCount: number, sensitive: any[] }} trial */
export function trialView(trial) {
  const words = trial.total
    ? `would have allowed ${number(trial.allowed)} of ${number(trial.total)} commands so far`
    : "there are no past commands to try it on yet";
  return el(
    "div",
    { class: "trial" },
    el(
      "p",
      {},
      trial.rules.map((rule, at) => [at ? ", " : "", el("code", {}, rule)]),
      ` ${words}.`,
    ),
    trial.total ? meter(trial.allowed, trial.total, words, trial.sensitiveCount ? "meter-bad" : "") : null,
    trial.remarks.map((remark) => el("p", { class: "notice notice-bad" }, remark)),
    trial.sensitiveCount
      ? el(
          "div",
          { class: "notice notice-bad" },
          el("p", {}, `${number(trial.sensitiveCount)} of them are sensitive:`),
          commands(trial.sensitive),
        )
      : null,
    trial.examples.length ? el("details", {}, el("summary", {}, "Examples"), commands(trial.examples)) : null,
  );
}

function commands(told) {
  return el(
    "ul",
    { class: "commands" },
    told.map((each) =>
      el(
        "li",
        {},
        el("code", { class: "clip" }, each.command),
        " ",
        el("span", { class: "quiet" }, when(each.at)),
        each.reasons?.length ? el("span", {}, ` ${each.reasons.join(", ")}`) : null,
      ),
    ),
  );
}
