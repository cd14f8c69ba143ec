// The conversation: what was said and done, as it happens, and the box to write in.

import { el, icon } from "../dom.js";
import { complain, notify } from "../dialog.js";
import { house, sessionTitle } from "../house.js";
import { newKey } from "../outbox.js";
import { addCommands } from "../palette.js";
import { go, sessionPath } from "../router.js";
import { session, sessions } from "../state.js";
import { shell } from "../shell.js";
import { VirtualList } from "../virtual.js";
import { wire } from "../wire.js";
import { droppable } from "./attachments.js";
import { makeChoosers } from "./choosers.js";
import { commandsFor, menuFor } from "./commands.js";
import { makeComposer } from "./composer.js";
import { emptyState } from "./empty.js";
import { follow, load, older } from "./loading.js";
import { drawItem } from "./message.js";
import { Pace } from "./pace.js";
import { looksAlike, shownItems } from "./shown.js";
import { KEYS } from "./approval.js";
import { Thread } from "./thread.js";

export const title = "Conversation";

/** @param {HTMLElement} root @returns {() => void} */
export function mount(root) {
  const view = new Conversation(root);
  return () => view.unmount();
}

class Conversation {
  #key = "";
  #thread = new Thread();
  #row = null; // of the session, as the gateway lists it
  #visit = 0; // who comes later wins
  #more = false; // whether there is older history
  #oldest = "";
  #paging = false;
  #loading = true;
  #dirty = new Set();
  #listChanged = false;
  #pace = new Pace(() => this.#draw());
  #offs = [];

  constructor(root) {
    this.root = root;
    this.choosers = makeChoosers(() => this.#key);
    this.composer = makeComposer({
      onSend: (...sent) => this.#send(...sent),
      onStop: () => this.#stop(),
      lastWords: () => this.#thread.lastWords,
      choosers: this.choosers,
    });
    this.list = new VirtualList((item) => drawItem(item, this.#doing()), { label: "Conversation", same: looksAlike });
    this.down = el(
      "button",
      { class: "button-quiet to-bottom", type: "button", hidden: true, on: { click: () => this.list.toBottom() } },
      "Newest",
      icon("chevron"),
    );
    this.empty = el("div", { class: "conversation-empty", hidden: true });
    this.node = el(
      "div",
      { class: "conversation" },
      this.list.node,
      this.empty,
      el("div", { class: "composer-place" }, this.down, this.composer.node),
    );
    root.append(this.node);
    this.list.onStick = (stuck) => (this.down.hidden = stuck);
    this.list.onTop = () => this.#older();
    this.#listen();
    this.#offs.push(session.subscribe((key) => key && this.#open(key)));
  }

  unmount() {
    this.#visit++;
    this.#pace.end();
    for (const off of this.#offs) off();
    this.list.clear();
    this.node.remove();
  }

  #listen() {
    const on = (event, fn) => this.#offs.push(wire.on(event, fn));
    on("agent", (told) => told.sessionKey === this.#key && this.#heard(told));
    on("chat", (told) => told.sessionKey === this.#key && told.state !== "delta" && this.#ended(told));
    on("sessions.changed", (told) => told.sessionKey === this.#key && this.#changed(told.reason));
    on("resync", () => this.#reload());
    on(
      "state",
      (state) => (this.#itemsChanged(), this.#status(), state === "connected" && this.#loading && this.#reload()),
    );
    on("outbox", () => this.#status());
    const keys = (event) => this.#keyPressed(event);
    document.addEventListener("keydown", keys);
    this.#offs.push(() => document.removeEventListener("keydown", keys));
    this.#offs.push(
      addCommands(() => commandsFor(this.#key, this.choosers, this.#thread.running.length > 0 && (() => this.#stop()))),
    );
    this.#offs.push(sessions.subscribe(() => this.#retitle()));
    droppable(this.node, (files) => this.composer.drop(files));
  }

  #open(key) {
    if (key === this.#key) return;
    this.#key = key;
    this.#thread = new Thread();
    this.#thread.onItems = () => this.#itemsChanged();
    this.#thread.onChange = (item) => (this.#dirty.add(item), this.#pace.soon());
    this.#thread.onCaughtUp = () => this.#reload();
    this.#loading = true;
    this.#row = null;
    this.#more = false;
    this.list.set([]);
    this.composer.open(key);
    this.#waitingWords();
    this.list.toBottom();
    shell.actions.replaceChildren(menuFor(key));
    this.#retitle();
    if (!shell.narrow) this.composer.focus();
    this.#reload();
  }

  /** Read the transcript, and take up what runs. After a reconnect too: events are not repeated. */
  async #reload() {
    const mine = ++this.#visit;
    const thread = this.#thread;
    try {
      const found = await load(this.#key);
      if (mine !== this.#visit) return;
      if (found.key !== this.#key) return go(sessionPath(found.key), { replace: true }); // written in another way
      this.#loading = false;
      this.#row = found.row;
      this.#more = found.hasMore;
      this.#oldest = found.messages[0]?.id ?? "";
      thread.reload(found.messages, found.active);
      for (const id of thread.running) follow(thread, id);
      this.#retitle();
      await (found.resolved
        ? this.choosers.show(found.row, found.resolved)
        : this.choosers.showAgent(this.#key.split(":")[1]));
      if (mine === this.#visit) this.#status();
    } catch (error) {
      if (mine === this.#visit && error.code !== "LOST") complain(error);
    }
  }

  async #older() {
    if (!this.#more || this.#paging) return;
    this.#paging = true;
    const mine = this.#visit;
    try {
      const found = await older(this.#key, this.#oldest);
      if (mine !== this.#visit || !found.messages.length) return void (this.#more = false);
      this.#more = found.hasMore;
      this.#oldest = found.messages[0].id;
      this.#thread.prepend(found.messages);
    } catch (error) {
      complain(error);
    } finally {
      this.#paging = false;
    }
  }

  /** What an earlier life of this page could not send yet. */
  #waitingWords() {
    for (const { method, params, key } of wire.waiting) {
      if (method === "chat.send" && params.sessionKey === this.#key) this.#thread.say(key, params.message).left = true;
    }
  }

  async #send(text, attachments, shown) {
    const key = newKey();
    const thread = this.#thread;
    const item = thread.say(key, text, shown);
    this.list.toBottom();
    try {
      const started = await wire.call(
        "chat.send",
        { sessionKey: this.#key, message: text, ...(attachments.length ? { attachments } : {}) },
        { key },
      );
      thread.accepted(item, started.runId);
      if (!sessions.value?.some((row) => row.key === started.sessionKey)) house.refreshSessions().catch(() => {});
    } catch (error) {
      error.code === "WITHDRAWN" ? thread.withdraw(item) : thread.refused(item, error);
    }
  }

  #stop() {
    if (wire.state !== "connected")
      return notify("Not connected: it cannot be stopped from here now.", { error: true });
    wire.call("chat.abort", { sessionKey: this.#key }).catch(complain);
  }

  #doing() {
    return {
      onAnswer: (item, decision) => this.#answer(item, decision),
      onAgain: (item) => this.#send(item.said ?? this.#thread.lastWords, [], []),
      onWithdraw: (item) => {
        if (!wire.withdraw(item.key.replace("said-", ""))) notify("It has been sent already.");
        else if (item.left) this.#thread.withdraw(item);
        this.composer.set(item.text);
      },
    };
  }

  async #answer(item, decision) {
    if (item.answering || item.status !== "pending") return;
    Object.assign(item, { answering: true });
    this.list.element(item.key)?.update();
    try {
      await wire.call("exec.approval.resolve", { id: item.id, decision, digest: item.digest });
    } catch (error) {
      complain(error);
    }
    item.answering = false;
    this.list.element(item.key)?.update();
    this.composer.focus();
  }

  #heard({ runId, stream, data }) {
    const thread = this.#thread;
    const begins = stream === "lifecycle" && data.phase === "start";
    if (stream !== "lifecycle" && !thread.knows(runId) && !thread.followed(runId)) return follow(thread, runId);
    thread.heard(runId, { stream, ...data });
    // Somebody spoke at another door: their words are in the transcript by now.
    if (begins && !thread.tail.some((item) => item.type === "user" && item.run === runId))
      setTimeout(() => thread === this.#thread && this.#reload(), 300);
  }

  #ended(told) {
    const thread = this.#thread;
    if (thread.followed(told.runId)) return;
    const words = thread.tail.find((item) => item.type === "user" && item.run === told.runId)?.text ?? "";
    thread.ended(told.runId, told);
    this.#refreshRow();
    if (/^\/(new|reset|compact)\b/i.test(words)) this.#reload();
  }

  #changed(reason) {
    if (reason === "run" || reason === "patch") this.#refreshRow();
    else this.#reload();
  }

  async #refreshRow() {
    const key = this.#key;
    try {
      const { session: row, resolved } = await wire.call("sessions.describe", { key });
      if (key !== this.#key || !row) return;
      this.#row = row;
      this.choosers.show(row, resolved);
    } catch {
      // the next event asks again
    }
  }

  #itemsChanged() {
    this.#listChanged = true;
    this.#pace.soon();
  }

  #draw() {
    for (const item of this.#dirty) this.list.element(item.key)?.update?.();
    const changed = this.#listChanged || this.#dirty.size;
    this.#dirty.clear();
    if (!changed) return;
    const items = shownItems(this.#thread, wire.state === "connected");
    if (
      this.#listChanged ||
      items.length !== this.list.items.length ||
      items.at(-1)?.key !== this.list.items.at(-1)?.key
    )
      this.list.set(items);
    this.#listChanged = false;
    this.#status();
  }

  #status() {
    const thread = this.#thread;
    const queued = thread.tail.filter((item) => item.type === "user" && item.state === "queued").length;
    this.composer.show(thread.running.length > 0, queued);
    const empty = !this.#loading && thread.items.length === 0;
    const model = this.choosers.current();
    if (empty && (this.empty.hidden || this.empty.dataset.model !== model))
      this.empty.replaceChildren(emptyState((words) => this.composer.set(words), model));
    this.empty.dataset.model = model;
    this.empty.hidden = !empty;
  }

  #retitle() {
    const row = sessions.value?.find((each) => each.key === this.#key) ?? this.#row;
    shell.title = sessionTitle(row, this.#key);
  }

  #keyPressed(event) {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && this.#thread.running.length) {
      event.preventDefault();
      this.#stop();
    }
    const decision =
      event.altKey && !event.ctrlKey && !event.metaKey ? KEYS[event.code.replace("Key", "").toLowerCase()] : null;
    const asking = decision && this.#thread.asking;
    // A card that has just come up has not been read yet.
    if (asking && Date.now() - asking.timestamp > 500 && !(decision === "allow-always" && asking.whyNotAlways)) {
      event.preventDefault();
      this.#answer(asking, decision);
    }
  }
}
