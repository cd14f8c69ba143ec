// Lines that a reflection has proposed for MEMORY.md: accepted as they are, accepted with other words, or rejected.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { failure, place, resync } from "./kit.js";
import { chip, input, worker } from "./parts.js";

/** @param {import("./kit.js").View} view @param {() => void} onChange @returns {HTMLElement} */
export function proposals(view, onChange) {
  const host = place(view, "proposals");
  const load = () =>
    host.load(
      () => wire.call("memory.proposals", { agent: view.agent }),
      (answer) => draw(answer.proposals ?? []),
    );

  function draw(list) {
    if (!list.length) return el("span", { hidden: true });
    return el(
      "section",
      { class: "card", "aria-labelledby": "proposals" },
      el("div", { class: "card-head" }, el("h2", { id: "proposals" }, "For MEMORY.md"), chip(String(list.length), "warn")),
      el("p", { class: "quiet" }, "A reflection proposes these lines. Change the words before you accept, if you like."),
      el(
        "ul",
        { class: "found" },
        list.map((each) => card(each)),
      ),
    );
  }

  function card({ id, text, why, sources }) {
    const trouble = el("div", { "aria-live": "polite" });
    const box = input({ value: text, "aria-label": `Words of the proposal ${id}` });
    const settle = async (verb) => {
      const words = box.value.trim() === text ? "" : box.value.trim();
      const told = verb === "accept" ? { text: words } : {};
      try {
        await wire.call(`memory.proposals.${verb}`, { proposal: id, agent: view.agent, ...told });
        load();
        onChange();
      } catch (error) {
        trouble.replaceChildren(failure(error, () => settle(verb)));
      }
    };
    return el(
      "li",
      { class: "card found-card" },
      box,
      el("p", { class: "quiet" }, [why, ...(sources ?? []).slice(0, 3)].join(" · ")),
      el(
        "div",
        { class: "flow" },
        worker("Accept", () => settle("accept"), ""),
        worker("Reject", () => settle("reject")),
      ),
      trouble,
    );
  }

  load();
  resync(view, load);
  return host.node;
}
