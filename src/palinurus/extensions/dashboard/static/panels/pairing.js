// Pairing: senders of channels who wait to be let in, as cards, and those who were.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { ago, when } from "./format.js";
import { calmly, failure, place, resync } from "./kit.js";
import { sure, table, worker } from "./parts.js";

const LIVES = 3_600_000; // milliseconds that a code is good for

/**
 * @param {import("./kit.js").View} view @param {(waiting: number) => void} told
 * @param {"" | "waiting" | "known"} which one of both parts, or all
 */
export function pairingList(view, told, which = "") {
  const host = place(view, "pairing", () => el("div"));
  const ask = () =>
    wire.call("pairing.list", {}, { reads: true }).catch((error) => {
      if (wire.scopes.has("approvals") || wire.scopes.has("admin")) throw error; // known once something was answered
      return { pairings: [] };
    });
  const load = () =>
    host.load(
      ask,
      ({ pairings }) => {
        const waiting = pairings.filter((each) => each.status === "pending");
        const known = pairings.filter((each) => each.status === "approved");
        told(waiting.length);
        return [
          which !== "known" ? waiting.map((each) => card(each, load)) : null,
          known.length && !view.compact && which !== "waiting"
            ? el("section", {}, el("h2", {}, "Senders let in"), senders(known, load))
            : null,
        ];
      },
    );
  load();
  view.onClose(wire.on("pairing", calmly(view, load, 150)));
  resync(view, load);
  return host.node;
}

/** `channel:account:id`, which names a sender without doubt. */
const named = (pairing) => `${pairing.channel}:${pairing.account}:${pairing.sender}`;

function who(pairing) {
  const account = pairing.account === "default" ? "" : `, account ${pairing.account}`;
  return `${pairing.sender} on ${pairing.channel}${account}`;
}

function card(pairing, done) {
  const told = el("div", { "aria-live": "polite" });
  async function decide(method) {
    try {
      await wire.call(method, { which: named(pairing) });
      await done();
    } catch (error) {
      told.replaceChildren(failure(error));
    }
  }
  return el(
    "article",
    { class: "card card-coral", "aria-label": `Pairing of ${who(pairing)}` },
    el(
      "div",
      { class: "card-head" },
      el("h2", {}, "Let this sender in?"),
      el("span", { class: "quiet" }, `expires ${ago(pairing.askedAt + LIVES)}`),
    ),
    el("p", {}, el("strong", {}, who(pairing)), pairing.senderName ? `, who is called “${pairing.senderName}” there` : ""),
    el("p", {}, "Code: ", el("code", {}, pairing.code), ". Compare it with the one that they were told."),
    el(
      "div",
      { class: "flow" },
      worker("Let in", () => decide("pairing.approve"), "coral"),
      worker("Reject", () => decide("pairing.reject")),
    ),
    told,
  );
}

function senders(rows, again) {
  return table(
    "Senders let in",
    [
      { name: "Sender", cell: (row) => [who(row), row.senderName ? ` (${row.senderName})` : ""] },
      { name: "Since", cell: (row) => when(row.decidedAt || row.askedAt) },
      {
        name: "",
        cell: (row) =>
          sure("Remove", "They will not be heard any more.", "Remove", async () => {
            await wire.call("pairing.reject", { which: named(row) });
            await again();
          }),
      },
    ],
    rows,
  );
}
