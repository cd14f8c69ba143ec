// Deliveries that need a person: messages that failed, or of which nobody can know whether they have arrived.

import { el } from "../dom.js";
import { sessionPath } from "../router.js";
import { wire } from "../wire.js";
import { count, when } from "./format.js";
import { failure, place, resync, sentence } from "./kit.js";
import { chip, sure, worker } from "./parts.js";

const MOST = 20;
const EVERY = 30_000; // milliseconds: no event tells of deliveries
const WORDS = {
  ambiguous: ["may have arrived", "warn", "Look in the chat first: it may have arrived. Sent again, it may be there twice."],
  failed: ["not sent", "bad", "It has not arrived."],
};

/** @param {import("./kit.js").View} view @param {(stuck: number) => void} told */
export function deliveryList(view, told) {
  const host = place(view, "deliveries", () => el("div"));
  const load = () =>
    host.load(
      () => wire.call("delivery.list", { states: ["ambiguous", "failed"], limit: MOST }),
      ({ parcels, standing }) => {
        const stuck = standing.ambiguous + standing.failed;
        told(stuck);
        const more = stuck - parcels.length;
        return [
          ...parcels.map((each) => card(each, load)),
          more > 0 ? el("p", { class: "quiet" }, `And ${count(more, "older message")}: pal delivery list`) : null,
        ];
      },
    );
  load();
  const timer = setInterval(() => host.node.contains(document.activeElement) || load(), EVERY);
  view.onClose(() => clearInterval(timer));
  resync(view, load);
  return host.node;
}

function card(each, done) {
  const told = el("div", { "aria-live": "polite" });
  const [word, tone, advice] = WORDS[each.state];
  const to = `${each.to} on ${each.channel}`;
  async function decide(method) {
    try {
      await wire.call(method, { id: each.id });
      await done();
    } catch (error) {
      told.replaceChildren(failure(error));
    }
  }
  const again = () => decide("delivery.retry");
  return el(
    "article",
    { class: "card card-coral", "aria-label": `Message to ${to}` },
    el(
      "div",
      { class: "card-head" },
      el("h2", {}, `Message to ${to}`),
      el("span", {}, chip(word, tone), " ", el("span", { class: "quiet" }, when(each.queuedAt))),
    ),
    el("p", {}, each.text.length > 400 ? `${each.text.slice(0, 400)}…` : each.text),
    el("p", {}, advice, each.trouble ? ` ${sentence(each.trouble)}` : ""),
    wire.scopes.has("write") || wire.scopes.has("admin")
      ? el(
          "div",
          { class: "flow" },
          each.state === "ambiguous"
            ? sure("Send again", "It may arrive twice.", "Send again", again)
            : worker("Send again", again, "coral"),
          worker("Drop", () => decide("delivery.drop")),
          each.sessionKey ? el("a", { class: "quiet", href: sessionPath(each.sessionKey) }, "Open session") : null,
        )
      : null,
    told,
  );
}
