// The message box: Enter sends, Shift-Enter breaks the line, `/` lists commands, the up arrow puts the last message back
// into an empty box, Esc stops the run.

import { el, icon } from "../dom.js";
import { Attachments } from "./attachments.js";
import { makeSlash } from "./slash.js";

const TOUCH = matchMedia("(pointer: coarse)");
const TALLEST = 0.4; // of the window

/**
 * @param {{onSend(text: string, attachments: any[], shown: string[]): void, onStop(): void, lastWords(): string,
 *   choosers: {model: Node, thinking: Node, queue: Node, window: Node}}} doing
 */
export function makeComposer({ onSend, onStop, lastWords, choosers }) {
  const box = el("textarea", {
    class: "composer-box",
    rows: 1,
    placeholder: "Message your agent…",
    "aria-label": "Message",
    enterKeyHint: TOUCH.matches ? "enter" : "send",
  });
  const files = new Attachments();
  const picker = el("input", { type: "file", multiple: true, hidden: true, "aria-label": "Attach files" });
  const attach = el(
    "button",
    {
      class: "button-icon",
      type: "button",
      "aria-label": "Attach pictures or text files",
      title: "Attach",
      on: { click: () => picker.click() },
    },
    icon("attach"),
  );
  const send = el(
    "button",
    { class: "button-icon composer-send", type: "submit", "aria-label": "Send", title: "Send (Enter)" },
    icon("send"),
  );
  const stop = el(
    "button",
    {
      class: "button-icon composer-stop",
      type: "button",
      "aria-label": "Stop",
      title: "Stop (Esc)",
      hidden: true,
      on: { click: onStop },
    },
    icon("stop"),
  );
  const slash = makeSlash(box, (text) => set(text));
  const hint = el("span", { class: "composer-hint quiet" });
  const tools = el(
    "div",
    { class: "composer-tools" },
    attach,
    picker,
    choosers.model,
    choosers.thinking,
    choosers.queue,
    hint,
    stop,
    send,
  );
  const form = el(
    "form",
    { class: "composer", "aria-label": "Write a message" },
    slash.node,
    choosers.window,
    files.node,
    box,
    tools,
  );
  let place = ""; // the storage key of the draft
  let running = false;

  function set(text) {
    box.value = text;
    changed();
    box.focus();
    box.setSelectionRange(text.length, text.length);
  }

  function changed() {
    fitHeight();
    slash.update();
    ready();
    if (place) sessionKeep(place, box.value);
  }

  function fitHeight() {
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight, innerHeight * TALLEST)}px`;
    box.style.overflowY = box.scrollHeight > innerHeight * TALLEST ? "auto" : "hidden";
  }

  function ready() {
    const something = Boolean(box.value.trim()) || !files.empty;
    send.disabled = !something;
    send.hidden = running && !something;
    stop.hidden = !running;
  }

  function submit() {
    const { words, attachments, shown } = files.take();
    const text = [box.value.trim(), words].filter(Boolean).join("\n\n");
    if (!text && !attachments.length) return;
    box.value = "";
    changed();
    onSend(text, attachments, shown);
  }

  function key(event) {
    if (event.isComposing || slash.key(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !(TOUCH.matches && !event.ctrlKey && !event.metaKey)) {
      event.preventDefault();
      submit();
    } else if (event.key === "ArrowUp" && !box.value && lastWords()) {
      event.preventDefault();
      set(lastWords());
    }
  }

  box.addEventListener("keydown", key);
  box.addEventListener("input", changed);
  box.addEventListener("blur", () => (slash.node.hidden = true));
  box.addEventListener("paste", (event) => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (pasted.length) (event.preventDefault(), files.add(pasted));
  });
  picker.addEventListener("change", () => files.add([...picker.files]).then(() => ((picker.value = ""), box.focus())));
  files.onChange = ready;
  form.addEventListener("submit", (event) => (event.preventDefault(), submit()));
  ready();

  return {
    node: form,
    box,
    /** Whether the box has text. */
    get busy() {
      return Boolean(box.value) || !files.empty;
    },
    set,
    focus: () => document.activeElement === box || box.focus({ preventScroll: true }),
    /** Files can be dropped anywhere on the chat. */
    drop: (dropped) => files.add(dropped),
    /** Each session has its own draft. */
    open(session) {
      place = `draft.${session}`;
      box.value = sessionKept(place);
      fitHeight();
      ready();
    },
    /** @param {boolean} runs @param {number} queued messages waiting for the gateway */
    show(runs, queued) {
      running = runs;
      choosers.queue.hidden = !runs;
      box.placeholder = runs ? "Add to the running reply…" : "Message your agent…";
      hint.textContent = queued ? `${queued} queued` : "";
      ready();
    },
  };
}

function sessionKept(name) {
  try {
    return sessionStorage.getItem(`palinurus.${name}`) ?? "";
  } catch {
    return "";
  }
}

function sessionKeep(name, text) {
  try {
    text ? sessionStorage.setItem(`palinurus.${name}`, text) : sessionStorage.removeItem(`palinurus.${name}`);
  } catch {
    // a draft that is too long is not stored
  }
}
