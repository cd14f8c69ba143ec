// Who may use which tool where, and all the reasons for each answer.

import { el } from "../dom.js";
import { wire } from "../wire.js";
import { empty, failure, place, settled } from "./kit.js";
import { chip, field, input, table } from "./parts.js";

/** @param {import("./kit.js").View} view @param {HTMLElement} page */
export function drawTools(view, page) {
  const asked = { sessionKey: view.session, sender: "", model: "", agent: view.agent };
  const list = place(view, "tools");
  const later = settled(view, load, 350);
  const box = (name, placeholder) =>
    input({
      placeholder,
      value: asked[name],
      class: "field mono",
      on: {
        input: (event) => {
          asked[name] = event.target.value.trim();
          later();
        },
      },
    });
  function load() {
    return list.load(
      () => wire.call("tools.list", asked),
      (found) => [
        el(
          "p",
          { class: "quiet" },
          `In ${found.sessionKey}${found.model ? `, with ${found.model}` : ""}${found.sandboxed ? ", in the sandbox" : ""}.`,
        ),
        found.tools.length ? toolTable(found.tools, asked) : empty("There are no tools."),
      ],
    );
  }
  page.append(
    el(
      "section",
      { class: "card", "aria-label": "Simulator" },
      el("h2", {}, "Tool access"),
      el(
        "div",
        { class: "fields fields-3" },
        field("Session", box("sessionKey", "agent:main:main"), "Default: the main session."),
        field("Sender", box("sender", "telegram:42"), "Default: you."),
        field("Model", box("model", "provider/model"), "Default: the session's last model."),
      ),
    ),
    list.node,
  );
  load();
}

function toolTable(tools, asked) {
  return table(
    "Tools and who may use them",
    [
      { name: "Tool", cell: (row) => el("code", { title: row.description || null }, row.name) },
      { name: "Group", cell: (row) => row.group },
      { name: "", cell: (row) => (row.allowed ? chip("allowed", "ok") : chip("not allowed", "bad")) },
      { name: "Reason", cell: (row) => why(row, asked) },
    ],
    tools,
  );
}

function why(row, asked) {
  const chain = el("div", {});
  const unfold = el(
    "details",
    { on: { toggle: () => unfold.open && !chain.childElementCount && explain() } },
    el("summary", {}, row.why || row.layer),
    chain,
  );
  async function explain() {
    try {
      const { verdict } = await wire.call("tools.explain", { name: row.name, ...asked });
      chain.replaceChildren(
        el(
          "ol",
          { class: "chain" },
          verdict.chain.map((step) =>
            el("li", {}, chip(step.layer, { allows: "ok", denies: "bad" }[step.verdict] ?? ""), " ", step.why),
          ),
        ),
      );
    } catch (error) {
      chain.replaceChildren(failure(error));
    }
  }
  return unfold;
}
