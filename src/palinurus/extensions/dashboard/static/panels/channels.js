// Channels: the accounts in chat networks and how each stands, who waits to be let in, and setting up another one.

import { clear, el } from "../dom.js";
import { complain, confirm, notify } from "../dialog.js";
import { wire } from "../wire.js";
import { channelForm, checkList } from "./channel_form.js";
import { count, when } from "./format.js";
import { calmly, empty, failure, notice, open, place, resync, sentence } from "./kit.js";
import { button, chip, worker } from "./parts.js";
import { pairingList } from "./pairing.js";

export const title = "Channels";

const TONES = { connected: "ok", starting: "", disconnected: "warn", failed: "bad", off: "", "not running": "warn" };
const POLICIES = {
  pairing: "Unknown senders get a pairing code.",
  allowlist: "Only senders of the allowlist may write.",
  open: "Everybody may write.",
  disabled: "Direct chats are off.",
};
const CALMLY = 1000; // milliseconds; counts change with each message

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "Talk with your agent in chat networks.");
  const [list, form] = [place(view), el("div", { class: "opened" })];
  const add = button("Add a channel", () => edit(), "", { hidden: true });
  view.tools.append(add);
  view.body.append(form, pairingList(view, () => {}, "waiting"), list.node, pairingList(view, () => {}, "known"));
  const outcomes = new Map(); // what a test of each account has shown: it outlives what is drawn anew
  let first = true;

  const ask = () => wire.call("channels.list", {}, { reads: true });
  const load = () => list.load(ask, draw);

  function draw({ channels, available }) {
    const mayChange = wire.scopes.has("admin"); // known once something was answered
    add.hidden = !mayChange;
    if (first && mayChange && view.asked("add")) edit(view.asked("add"));
    first = false;
    if (!channels.length) return nothing(mayChange ? available : []);
    keepFocus();
    return channels.map((each) => card(each, { mayChange, edit, again: load, told: outcomeOf(each) }));
  }

  /** On the same control, when what has it is drawn anew. */
  function keepFocus() {
    const held = list.node.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    if (!held) return;
    const same = () => [...list.node.querySelectorAll("button")].find((each) => each.getAttribute("aria-label") === held);
    queueMicrotask(() => same()?.focus({ preventScroll: true }));
  }

  function outcomeOf({ channel, account }) {
    const name = `${channel}:${account}`;
    if (!outcomes.has(name)) outcomes.set(name, el("div", { class: "filled", "aria-live": "polite" }));
    return outcomes.get(name);
  }

  function nothing(available) {
    return empty(
      "No channel is set up.",
      "Choose a network; the steps follow.",
      el("div", { class: "flow" }, available.map((name) => button(name, () => edit(name)))),
    );
  }

  async function edit(channel = "", account = "") {
    view.remember({ add: channel || "telegram" });
    try {
      const { networks } = await wire.call("channels.networks", {}, { reads: true });
      if (!view.alive()) return;
      clear(form, channelForm(networks, { channel, account, chosen: (name) => view.remember({ add: name }), done }));
      form.querySelector("select").focus();
    } catch (error) {
      clear(form, failure(error));
    }
  }

  /** @param {any} saved nothing: it was cancelled */
  function done(saved) {
    view.remember({ add: "" });
    clear(form);
    add.focus();
    if (!saved) return;
    clear(form, notice(`${saved.title} is set up. ${sentence(saved.afterwards)}`, "ok"), checkList(saved.checks));
    load();
  }

  for (const event of ["channels.changed", "pairing"]) view.onClose(wire.on(event, calmly(view, load, 150)));
  view.onClose(wire.on("sessions.changed", calmly(view, load, CALMLY)));
  resync(view, load);
  load();
  return view.close;
}

/** @param {any} account a row of channels.list @param {any} how `told`: where its tests are shown */
function card(account, { mayChange, edit, again, told }) {
  const id = `channel-${account.channel}-${account.account}`;
  const name = account.account === "default" ? account.title : `${account.title} (${account.account})`;
  const which = { channel: account.channel, account: account.account };

  async function test() {
    clear(told, el("p", { class: "quiet" }, `Asking ${account.title}…`));
    try {
      const { ok, checks } = await wire.call("channels.test", which, { reads: true });
      clear(told, checkList(checks), ok ? notice(`${account.title} works.`, "ok") : null);
    } catch (error) {
      clear(told, failure(error));
    }
  }

  async function remove() {
    const text = "It is taken out of the config. Sessions, and who was let in, stay.";
    if (!(await confirm({ title: `Remove ${name}?`, text, yes: "Remove", danger: true }))) return;
    try {
      await wire.call("channels.remove", which);
      notify(`${name} was removed.`);
    } catch (error) {
      complain(error);
    }
    await again();
  }

  return el(
    "section",
    { class: "card", "aria-labelledby": id },
    el(
      "div",
      { class: "card-head" },
      el("h2", { id }, name),
      el("div", { class: "flow" }, chip(account.state, TONES[account.state] ?? ""), since(account)),
    ),
    account.identity ? el("p", {}, account.identity) : null,
    account.trouble ? el("p", {}, el("strong", {}, sentence(account.trouble)), " ", sentence(account.hint)) : null,
    el("p", { class: "quiet" }, figures(account)),
    el("p", { class: "quiet" }, POLICIES[account.dmPolicy] ?? ""),
    el(
      "div",
      { class: "flow" },
      mayChange ? worker("Test", test, "quiet", { "aria-label": `Test ${name}` }) : null,
      mayChange && account.state === "failed" ? button("Set up", () => edit(account.channel, account.account), "quiet", { "aria-label": `Set up ${name}` }) : null,
      mayChange ? worker("Remove", remove, "quiet", { "aria-label": `Remove ${name}` }) : null,
    ),
    told,
  );
}

const since = ({ since }) => (since ? el("span", { class: "quiet" }, "since ", when(since)) : null);

function figures({ received, sent, lastReceivedAt, waitingPairings }) {
  const waiting = waitingPairings ? `; ${count(waitingPairings, "sender waits", "senders wait")} for pairing` : "";
  const last = lastReceivedAt ? [" (last ", when(lastReceivedAt), ")"] : [];
  return [`${count(received, "message")} received`, ...last, `, ${sent} sent since the start`, waiting];
}
