// A session as a list of items: messages, thoughts, tool calls and approvals. It has two parts. `past` comes from the
// transcript. `tail` grows by events while runs go on, in the order in which things happen; it is dropped when the
// transcript has been loaded again. Nothing here touches the document.
//
// An item: {key, type: user | text | thought | tool | approval | notice | error | mark, …}. Items of the tail are changed
// in place, and `onChange(item)` reports it; `onItems()` reports that the list has changed.

import { answeredRuns, itemsOf } from "./past.js";

const REFUSED = "refused"; // the error kind of an unknown command

export class Thread {
  onItems = () => {};
  onChange = () => {};
  /** A run that was followed from its middle is over: load the transcript. */
  onCaughtUp = () => {};
  /** The message was not a command, and was refused. */
  onRefused = () => {};

  past = [];
  tail = [];
  /** The loaded part is not the end of the transcript: new messages belong elsewhere. */
  apart = false;
  /** The address of the current session, when this one has ended. */
  goesOn = "";
  #runs = new Map(); // id → {state, text, thought, tools, approvals, followed}
  #done = new Set(); // ids of runs that have ended: two events report it
  #count = 0;
  #tried = new Set(); // keys of errors that were retried
  #refused = new Set(); // ids of runs whose message was refused

  get items() {
    if (this.apart) return this.past;
    return this.#hideRepeated(this.past, this.#ordered);
  }

  /** Messages that wait for their run come last, whatever else happens. */
  get #ordered() {
    const waits = (item) => item.type === "user" && item.state !== "sent";
    return [...this.tail.filter((item) => !waits(item)), ...this.tail.filter(waits)];
  }

  /** Running runs of this session, the oldest first. */
  get running() {
    return [...this.#runs].filter(([, run]) => run.state === "running").map(([id]) => id);
  }

  get waiting() {
    return [...this.#runs].filter(([, run]) => run.state === "waiting").map(([id]) => id);
  }

  /** The last message of the person. */
  get lastWords() {
    return this.items.findLast((item) => item.type === "user" && item.text)?.text ?? "";
  }

  /** The approval that waits longest. */
  get asking() {
    return this.tail.find((item) => item.type === "approval" && item.status === "pending");
  }

  /** The transcript was loaded: remove from the tail what is in it, keep what is not. */
  reload(messages, active) {
    this.past = itemsOf(messages);
    const said = new Set(messages.flatMap((message) => [message.id, ...(message.also ?? [])]));
    const last = Number(messages.at(-1)?.timestamp ?? 0);
    this.tail = this.tail.filter((item) =>
      item.type === "user"
        ? !said.has(item.run) && (item.state !== "sent" || active.includes(item.run))
        : item.type === "error" && !item.run && item.timestamp > last, // a refusal exists only in this window
    );
    for (const id of [...this.#runs.keys()]) if (!active.includes(id)) this.#runs.delete(id);
    // Its end may still be reported: its text is here already.
    for (const id of answeredRuns(messages)) if (!active.includes(id)) this.#done.add(id);
    for (const id of active) this.#runs.set(id, newRun(this.apart || said.has(id) ? "running" : "waiting"));
    this.onItems();
  }

  /** More or other messages of the transcript, while the tail is unchanged. */
  show(messages) {
    this.past = itemsOf(messages);
    this.onItems();
  }

  /** The message that led to this error; null when it was not sent here or was sent again already. */
  failed(error) {
    if (this.#tried.has(error.key)) return null;
    const ran = (item) => item.type === "user" && (item.run === error.run || item.also?.includes(error.run));
    const said = error.failed ?? (error.run && [...this.past, ...this.tail].find(ran));
    return said && (said.origin ?? "owner") === "owner" ? said : null;
  }

  /** Mark the error as retried, once. Returns the message. */
  takeFailed(error) {
    const said = this.failed(error);
    this.#tried.add(error.key);
    this.onChange(error);
    return said;
  }

  /** The person sends a message. It is shown at once, as queued until the gateway has it. */
  say(key, text, images = []) {
    const item = { key: `said-${key}`, type: "user", text, images, timestamp: Date.now(), state: "queued", run: "" };
    this.tail.push(item);
    this.onItems();
    return item;
  }

  /** The gateway has accepted it as this run. */
  accepted(item, runId) {
    item.run = runId;
    if (this.#refused.has(runId)) return this.#notTaken(item);
    if (this.past.some((each) => each.type === "user" && (each.run === runId || each.also?.includes(runId)))) {
      if (!this.#done.has(runId) && !this.#runs.has(runId)) this.#runs.set(runId, newRun("running"));
      return this.withdraw(item); // the transcript has it already
    }
    if (this.#done.has(runId)) return this.#turn(item); // a command may be answered before it is reported as accepted
    const run = this.#runs.get(runId) ?? newRun("waiting");
    this.#runs.set(runId, run);
    run.state === "waiting" ? this.#set(item, { state: "waiting" }) : this.#turn(item);
  }

  /** Its run starts: from now on the message has its place before its own reply. */
  #turn(item) {
    const others = this.tail.filter((each) => each !== item);
    const answer = others.findIndex((each) => each.run === item.run);
    others.splice(answer < 0 ? others.length : answer, 0, item);
    this.tail = others;
    this.#set(item, { state: "sent" });
    this.onItems();
  }

  /** It could not be sent. */
  refused(item, error) {
    this.tail = this.tail.filter((each) => each !== item);
    this.#push({ type: "error", text: error.message, hint: error.hint, failed: item });
  }

  /** It exists only in this window: put it back into the box. */
  #notTaken(item) {
    this.withdraw(item);
    this.onRefused(item);
  }

  withdraw(item) {
    this.tail = this.tail.filter((each) => each !== item);
    this.onItems();
  }

  /** A notice of the dashboard itself. */
  note(text) {
    this.#push({ type: "notice", text });
  }

  /** A text of this session that was not requested from here, such as the answer to a command. */
  speak(text) {
    this.#push({ type: "text", text, plain: true });
  }

  /** Whether this run's events are known from its start. */
  knows(runId) {
    return this.#runs.has(runId) && this.#runs.get(runId).whole;
  }

  /** From now on the run is shown from its log, replayed from the start; broadcast events of it are ignored. */
  follow(runId) {
    const run = newRun("running");
    run.followed = true;
    this.tail = this.tail.filter((item) => item.run !== runId || item.type === "user");
    this.#runs.set(runId, run);
    return (event) => this.#happened(runId, run, event);
  }

  followed(runId) {
    return this.#runs.get(runId)?.followed ?? false;
  }

  /** A broadcast event of a run. */
  heard(runId, event) {
    if (this.followed(runId) || this.#done.has(runId)) return;
    let run = this.#runs.get(runId);
    if (!run) this.#runs.set(runId, (run = newRun("waiting")));
    this.#happened(runId, run, event);
  }

  /** How a run ended, with its whole text. */
  ended(runId, { state, message, errorMessage, errorKind, joined }) {
    const run = this.#runs.get(runId);
    if (this.#done.has(runId)) return;
    if (joined) return this.#over(runId, run);
    const text = message?.content?.map((block) => block.text ?? "").join("") ?? "";
    const shown = this.tail.findLast((item) => item.run === runId && item.type === "text");
    if (text && !shown) this.#push({ type: "text", run: runId, text, plain: !run?.asked });
    else if (text && shown.text !== text && state === "final" && !shown.text.endsWith(text)) this.#set(shown, { text });
    if (state === "error" && errorKind === REFUSED) {
      const item = this.tail.find((each) => each.type === "user" && each.run === runId);
      item ? this.#notTaken(item) : this.#refused.add(runId);
      this.#push({ type: "error", text: errorMessage, refused: true });
    } else if (state === "error") this.#push({ type: "error", run: runId, text: errorMessage || "The run failed." });
    if (state === "aborted") this.#push({ type: "notice", run: runId, text: "Stopped." });
    this.#over(runId, run);
  }

  #over(runId, run) {
    this.#close(run);
    this.#done.add(runId);
    this.#runs.delete(runId);
    for (const item of [...this.tail]) {
      if (item.run !== runId) continue;
      if (item.type === "user" && item.state !== "sent") this.#turn(item);
      if (item.type === "approval" && item.status === "pending") this.#set(item, { status: "abandoned" });
      if (item.type === "tool" && !item.result)
        this.#set(item, { result: { text: "", isError: false, seconds: 0, unknown: true } });
    }
    const words = this.tail.findLast((item) => item.run === runId && item.type === "text");
    if (words) this.#set(words, { last: true });
    this.onItems();
    if (run?.followed) this.onCaughtUp();
  }

  #happened(runId, run, event) {
    switch (event.stream) {
      case "lifecycle":
        return this.#phase(runId, run, event);
      case "model.start":
        run.asked = true;
        return this.#close(run);
      case "model.end":
        return this.#close(run);
      case "thinking":
        return this.#grow(runId, run, "thought", event.text);
      case "assistant":
        return this.#grow(runId, run, "text", event.text);
      case "notice":
        return this.#notice(runId, run, event);
      case "tool": // broadcast form; the log of a run has the two below
        return this.#tool(runId, run, event);
      case "tool.start":
        return this.#toolStarted(runId, run, event);
      case "tool.end":
        return this.#toolEnded(run, event);
      case "approval.asked":
        return this.#asked(runId, run, event);
      case "approval.settled":
        return this.#settled(event);
    }
  }

  #phase(runId, run, { phase, detail }) {
    if (phase === "start") {
      run.state = "running";
      run.whole = true;
      const item = this.tail.find((each) => each.run === runId && each.type === "user");
      if (item) this.#turn(item);
      this.onItems();
    } else if (run.followed && phase !== "accepted") {
      if (phase === "error") this.#push({ type: "error", run: runId, text: detail || "The run failed." });
      this.#over(runId, run);
    }
  }

  #grow(runId, run, type, text) {
    const slot = type === "text" ? "text" : "thought";
    if (type === "text") this.#settleLive(run, "thought");
    if (!run[slot]) return void (run[slot] = this.#push({ type, run: runId, text, live: true }));
    run[slot].text += text;
    this.onChange(run[slot]);
  }

  #notice(runId, run, { text, discard }) {
    this.#close(run);
    if (discard) {
      const from = this.tail.findLastIndex(
        (item) => item.run === runId && (item.type === "tool" || item.type === "user"),
      );
      this.tail = this.tail.filter(
        (item, at) => at <= from || item.run !== runId || (item.type !== "text" && item.type !== "thought"),
      );
    }
    this.#push({ type: "notice", run: runId, text });
  }

  #tool(runId, run, { phase, toolCallId: id, name, args, result, isError, seconds, where }) {
    if (phase === "start") return this.#toolStarted(runId, run, { id, name, arguments: args });
    const text = result?.content?.map((block) => block.text ?? "").join("") ?? "";
    this.#toolEnded(run, { id, text, is_error: isError, seconds, where });
  }

  #toolStarted(runId, run, { id, name, arguments: given }) {
    this.#close(run);
    run.tools.set(
      id,
      this.#push({ type: "tool", run: runId, call: { id, name, arguments: given }, result: null, began: Date.now() }),
    );
  }

  #toolEnded(run, { id, text, is_error: isError, seconds, where }) {
    const item = run.tools.get(id);
    if (item) this.#set(item, { result: { text, isError, seconds, where } });
  }

  #asked(runId, run, { id, plan, digest, reason, deadline, sources }) {
    this.#close(run);
    if (this.tail.some((item) => item.type === "approval" && item.id === id)) return;
    this.#push({ type: "approval", run: runId, id, plan, digest, reason, deadline, sources, status: "pending" });
  }

  #settled({ id, status, by }) {
    const item = this.tail.find((each) => each.type === "approval" && each.id === id);
    if (item) this.#set(item, { status, by });
  }

  #close(run) {
    if (!run) return;
    this.#settleLive(run, "text");
    this.#settleLive(run, "thought");
  }

  #settleLive(run, slot) {
    const item = run[slot];
    run[slot] = null;
    if (item) this.#set(item, { live: false });
  }

  #push(item) {
    item.key = `${item.run || "local"}-${++this.#count}`;
    item.timestamp = Date.now();
    this.tail.push(item);
    this.onItems();
    return item;
  }

  #set(item, fields) {
    Object.assign(item, fields);
    this.onChange(item);
  }

  /** A run that is followed from its start repeats what the transcript has of it: show that once. */
  #hideRepeated(past, tail) {
    for (const [id, run] of this.#runs) {
      if (!run.followed || !run.tools.size) continue;
      const said = past.findIndex((item) => item.type === "user" && item.run === id);
      const first = past.findIndex((item, at) => at > said && item.type === "tool" && run.tools.has(item.call.id));
      if (said < 0 || first < 0) continue;
      const breath = past[first].message; // text before a tool call belongs to the same message
      const known = past.findIndex((item) => item.message === breath);
      return [...past.slice(0, known), ...tail];
    }
    return [...past, ...tail];
  }
}

function newRun(state) {
  return { state, text: null, thought: null, tools: new Map(), asked: false, followed: false, whole: false };
}
