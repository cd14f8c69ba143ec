// Setting a channel up: the network, what to do there step by step, what to enter here. It is tried before it is saved.

import { clear, el } from "../dom.js";
import { notify } from "../dialog.js";
import { wire } from "../wire.js";
import { failure, notice, sentence } from "./kit.js";
import { button, chip, field, input, select, unique, worker } from "./parts.js";

/**
 * @param {any[]} networks of channels.networks
 * @param {{channel: string, account: string, chosen: (channel: string) => void, done: (saved: any) => void}} how
 *   `done` is given nothing when it was cancelled
 */
export function channelForm(networks, { channel, account, chosen, done }) {
  const id = unique("channel-form");
  let network = networks.find((each) => each.channel === channel) ?? networks[0];
  let fields = new Map();
  const own = el("div", { class: "filled" });
  const told = el("div", { class: "filled", "aria-live": "polite" });
  const named = input({ maxLength: 80, value: account === "default" ? "" : account });
  const names = networks.map((each) => [each.channel, each.title]);
  const chooser = select(names, network.channel, choose);

  function choose(name) {
    network = networks.find((each) => each.channel === name);
    fields = new Map(network.fields.map((each) => [each.key, fieldOf(each)]));
    clear(told);
    clear(
      own,
      el("ol", { class: "steps" }, network.steps.map((step) => el("li", {}, withCode(step)))),
      network.hasManifest ? worker("Copy the manifest", () => copyManifest(name, told)) : null,
      el("div", { class: "fields" }, network.fields.map((each) => field(each.prompt, fields.get(each.key)))),
    );
    chosen(name);
  }

  async function save(force) {
    const gap = network.fields.find((each) => each.required && !fields.get(each.key).value.trim());
    if (gap) return fields.get(gap.key).focus();
    const values = Object.fromEntries([...fields].map(([key, each]) => [key, each.value.trim()]));
    const asked = { channel: network.channel, account: named.value.trim() || "default", values, force };
    clear(told, el("p", { class: "quiet" }, `Asking ${network.title}…`));
    try {
      // Not through the outbox, where secrets could be read until it is answered.
      const added = await wire.call("channels.add", asked, { reads: true });
      if (added.saved) return done({ ...added, title: network.title });
      clear(told, checkList(added.checks), notice("Nothing was saved.", "bad"), worker("Save anyway", () => save(true)));
    } catch (error) {
      clear(told, failure(error));
    }
    return undefined;
  }

  choose(network.channel);
  const keep = worker("Test and save", () => save(false), "", { type: "submit" });
  return el(
    "form",
    { class: "card filled", "aria-labelledby": id, on: { submit: (event) => event.preventDefault() } },
    el("h2", { id }, "Set up a channel"),
    el(
      "div",
      { class: "fields" },
      field("Network", chooser),
      field("Name of the account", named, "Only if you have several on this network."),
    ),
    own,
    el("div", { class: "flow" }, keep, button("Cancel", () => done(null))),
    told,
  );
}

const fieldOf = ({ secret, required }) =>
  input({ type: secret ? "password" : "text", autocomplete: secret ? "new-password" : "off", required, maxLength: 2000 });

/** What was tried on the network, and what to click where. @param {any[]} checks */
export function checkList(checks) {
  return el(
    "ul",
    { class: "checks", "aria-label": "Checks" },
    checks.map(({ name, ok, about, hint }) =>
      el(
        "li",
        {},
        chip(ok ? "ok" : "failed", ok ? "ok" : "bad"),
        el("span", {}, el("strong", {}, name), about ? `: ${sentence(about)}` : "", ok || !hint ? "" : ` ${sentence(hint)}`),
      ),
    ),
  );
}

async function copyManifest(channel, told) {
  try {
    const text = JSON.stringify(await wire.call("channels.manifest", { channel }, { reads: true }), null, 2);
    await navigator.clipboard.writeText(text).then(
      () => notify("The manifest was copied."),
      () => clear(told, el("pre", { class: "command mono", tabindex: "0" }, text)), // where the browser forbids it
    );
  } catch (error) {
    clear(told, failure(error));
  }
}

/** Text with what stands in backticks as code. */
const withCode = (text) => text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
