// The chat: messages and tool calls as they happen, and the box to write in.

import { el, icon } from "../dom.js";
import { complain, notify, twice } from "../dialog.js";
import { home, sessionTitle } from "../home.js";
import { newKey } from "../outbox.js";
import { addCommands } from "../palette.js";
import { go, sessionPath } from "../router.js";
import { session, sessions, spot } from "../state.js";
import { shell } from "../shell.js";
import { VirtualList } from "../virtual.js";
import { wire } from "../wire.js";
import { attachmentOf, droppable } from "./attachments.js";
import { Attention, isRead } from "./attention.js";
import { makeChoosers } from "./choosers.js";
import { commandsFor, menuFor } from "./commands.js";
import { makeComposer } from "./composer.js";
import { emptyState } from "./empty.js";
import { describe, follow, Stretch } from "./loading.js";
import { drawItem } from "./message.js";
import { Pace } from "./pace.js";
import { itemOf, looksAlike, shownItems } from "./shown.js";
import { KEYS } from "./approval.js";
import { Thread } from "./thread.js";

export const title = "Chat";

/** @param {HTMLElement} root @returns {() => void} */
export function mount(root) {
  const view = new Chat(root);
  return () => view.unmount();
}

class Chat {
  #key = "";
  #thread = new Thread();
  #row = null; // the session, as the gateway lists it
  #visit = 0; // the latest navigation wins
  #stretch = new Stretch(); // the loaded part of the transcript
  #entry = ""; // the message that the address names
  #found = ""; // the key of its item, which is marked
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
    this.list = new VirtualList((item) => this.#drawn(item), { label: "Messages", same: looksAlike });
    this.attention = new Attention(this.composer, (item) => this.list.element(item.key)?.querySelector(".approval"));
    this.down = el(
      "button",
      { class: "button-quiet to-bottom", type: "button", hidden: true, on: { click: () => this.#toNewest() } },
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
    this.list.onTop = () => this.#extend(false);
    this.list.onBottom = () => this.#extend(true);
    this.#listen();
    this.#offs.push(session.subscribe((key) => key && this.#open(key)));
    this.#offs.push(spot.subscribe(({ entry }) => this.#arrive(entry)));
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
    this.#thread.onRefused = (item) => this.composer.busy || this.composer.set(item.text);
    this.#loading = true;
    this.#row = null;
    this.#stretch = new Stretch();
    this.attention.look();
    this.list.set([]);
    this.composer.open(key);
    this.#waitingWords();
    this.list.toBottom();
    shell.actions.replaceChildren(menuFor(key));
    this.#retitle();
    if (!shell.narrow) this.composer.focus();
  }

  /** By its address: at the message that it names, or at the end. */
  #arrive(entry) {
    const left = this.#entry;
    this.#entry = entry;
    if (!entry) this.#mark("");
    if (entry && !this.#loading && this.#stretch.has(entry)) return this.#bringUp();
    if (!entry && (left || this.#loading)) this.list.toBottom();
    if (entry || this.#loading || this.#thread.apart) this.#reload(true);
  }

  /**
   * Load the transcript and follow running runs. After a reconnect too: events are not repeated. A reader far from the
   * end stays there, unless `anew` is set.
   */
  async #reload(anew = this.#loading) {
    const mine = ++this.#visit;
    const [thread, entry, here] = [this.#thread, anew ? this.#entry : "", this.#stretch];
    try {
      const { row, resolved, active } = await describe(this.#key);
      const stay = !anew && thread.apart;
      const stretch = stay ? here : await Stretch.read(this.#key, entry, here.messages.length);
      if (mine !== this.#visit) return;
      if (stretch.key !== this.#key) return go(sessionPath(stretch.key, entry), { replace: true }); // the key in its full form
      this.#loading = false;
      this.#row = row;
      this.#attach(stretch);
      thread.reload(stretch.messages, active);
      for (const id of thread.running) follow(thread, id);
      if (entry) this.#bringUp();
      else if (anew) this.list.toBottom();
      this.#retitle();
      await (resolved ? this.choosers.show(row, resolved) : this.choosers.showAgent(this.#key.split(":")[1]));
      if (mine === this.#visit) this.#status();
    } catch (error) {
      if (mine !== this.#visit || error.code === "LOST") return;
      complain(error);
      if (entry && error.code === "NOT_FOUND") go(sessionPath(this.#key), { replace: true });
    }
  }

  #attach(stretch) {
    this.#stretch = stretch;
    this.#thread.apart = stretch.apart;
    this.#thread.goesOn = stretch.ended && !stretch.newer ? sessionPath(this.#key) : "";
    this.list.sticks = !stretch.apart;
  }

  /** Load older or newer messages. At the end of the transcript, new messages are shown as they come. */
  async #extend(behind) {
    const stretch = this.#stretch;
    try {
      if (!(await stretch.extend(behind)) || stretch !== this.#stretch) return;
      if (behind && !stretch.apart) return this.#reload();
      this.#attach(stretch);
      this.#thread.show(stretch.messages);
    } catch (error) {
      complain(error);
    }
  }

  #toNewest() {
    if (this.#thread.apart) go(sessionPath(this.#key));
    this.list.toBottom();
  }

  /** Scroll to the message that the address names, and mark it. */
  #bringUp() {
    this.#listChanged = true;
    this.#draw();
    const item = itemOf(this.list.items, this.#entry);
    if (!item) return;
    this.#mark(item.key);
    this.list.toItem(item.key);
  }

  #mark(key) {
    const mark = (row, on) => row && (row.classList.toggle("row-found", on), (row.ariaCurrent = on ? "true" : null));
    mark(this.list.element(this.#found), false);
    this.#found = key;
    mark(this.list.element(key), true);
  }

  #drawn(item) {
    const row = drawItem(item, this.#doing());
    if (item.key === this.#found) (row.classList.add("row-found"), (row.ariaCurrent = "true"));
    return row;
  }

  /** Messages that were not sent before a reload. */
  #waitingWords() {
    for (const { method, params, key } of wire.waiting) {
      if (method === "chat.send" && params.sessionKey === this.#key) this.#thread.say(key, params.message).left = true;
    }
  }

  async #send(text, attachments, shown) {
    const key = newKey();
    if (this.#thread.apart) this.#toNewest();
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
      if (!sessions.value?.some((row) => row.key === started.sessionKey)) home.refreshSessions().catch(() => {});
    } catch (error) {
      error.code === "WITHDRAWN" ? thread.withdraw(item) : thread.refused(item, error);
    }
  }

  #stop() {
    if (wire.state !== "connected")
      return notify("Not connected: the run cannot be stopped from here now.", { error: true });
    wire.call("chat.abort", { sessionKey: this.#key }).catch(complain);
  }

  #doing() {
    return {
      onAnswer: (item, decision) => this.#answer(item, decision),
      onAgain: (item) => this.#again(item),
      mayAgain: (item) => this.#thread.failed(item) !== null,
      onWrite: () => this.composer.focus(),
      session: this.#key,
      onWithdraw: (item) => {
        if (!wire.withdraw(item.key.replace("said-", ""))) notify("The message has been sent already.");
        else if (item.left) this.#thread.withdraw(item);
        this.composer.set(item.text);
      },
    };
  }

  /** Send exactly what failed, with its attachments. */
  #again(error) {
    const said = this.#thread.takeFailed(error);
    const pictures = said?.images.filter(Boolean) ?? [];
    if (said) this.#send(said.text, pictures.map(attachmentOf), pictures);
  }

  async #answer(item, decision) {
    if (item.answering || item.status !== "pending") return;
    Object.assign(item, { answering: true });
    this.list.element(item.key)?.update();
    let done = null;
    try {
      const asked = { id: item.id, decision, digest: item.digest };
      done = await twice((yes) => wire.call("exec.approval.resolve", { ...asked, ...yes }));
    } catch (error) {
      complain(error);
    }
    item.answering = false;
    this.list.element(item.key)?.update();
    done ? this.composer.focus() : this.attention.take();
  }

  #heard({ runId, stream, data }) {
    const thread = this.#thread;
    const begins = stream === "lifecycle" && data.phase === "start";
    if (stream !== "lifecycle" && !thread.knows(runId) && !thread.followed(runId)) return follow(thread, runId);
    thread.heard(runId, { stream, ...data });
    // A message sent on another surface is in the transcript by now. For a message of ours the acceptance may arrive only
    // now.
    const ours = () => thread.tail.some((item) => item.type === "user" && item.run === runId);
    if (begins && !ours()) setTimeout(() => thread === this.#thread && !ours() && this.#reload(), 300);
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
      // the next event loads it again
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
    this.attention.look(this.#thread.apart ? null : this.#thread.asking);
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
    const asking = decision && !this.#thread.apart && this.#thread.asking;
    if (asking && isRead(asking) && !(decision === "allow-always" && asking.whyNotAlways)) {
      event.preventDefault();
      this.#answer(asking, decision);
    }
  }
}
