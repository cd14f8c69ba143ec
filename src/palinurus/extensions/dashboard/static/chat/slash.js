// `/` in an empty box: the slash commands, which are handled before the model sees the message.

import { el, clear } from "../dom.js";
import { fit } from "../palette.js";
import { wire } from "../wire.js";

// The commands of this release; a gateway with commands.list replaces them.
let commands = [
  ["/new", "reset the session; messages stay in the transcript"],
  ["/compact", "summarise the session, with a focus if you name one"],
  ["/stop", "stop the run of this session"],
  ["/status", "model, tokens and state of this session"],
  ["/approve", "list and answer waiting approvals"],
  ["/trust", "list untrusted sources; trust one"],
  ["/context", "the parts of the prompt and their cost"],
  ["/models", "available models"],
  ["/whoami", "your identity and channel in this session"],
  ["/help", "this list"],
  ["/model", "the model of this session"],
  ["/think", "thinking level: off … max"],
  ["/queue", "messages sent during a run: steer, followup, collect, interrupt"],
  ["/verbose", "tool calls shown: off, on, full"],
  ["/reasoning", "the model's thinking shown: off, on, stream"],
  ["/elevated", "whether commands may leave the sandbox"],
  ["/usage", "usage below each reply: off, tokens, cost, full"],
].map(([name, meaning]) => ({ name, meaning }));
let asked = false;

async function learn() {
  if (asked || !wire.methods.has("commands.list")) return;
  asked = true;
  try {
    const told = await wire.call("commands.list");
    commands = told.commands.map(({ name, meaning, words }) => ({
      name: `/${name.replace(/^\//, "")}`,
      meaning,
      words,
    }));
  } catch {
    asked = false;
  }
}

/**
 * The list above the box. It handles the keys it needs and leaves the others.
 *
 * @param {HTMLTextAreaElement} box
 * @param {(text: string) => void} fill
 */
export function makeSlash(box, fill) {
  const list = el("div", { class: "slash", id: "slash-list", role: "listbox", "aria-label": "Commands", hidden: true });
  let found = [];
  let at = 0;

  function update() {
    const words = /^\/\S*$/.exec(box.value)?.[0].toLowerCase();
    if (words) learn();
    const own = words
      ? commands.map((command) => ({ command, score: words === "/" ? 0 : fit(words.slice(1), command.name.slice(1)) }))
      : [];
    found = own
      .filter((each) => each.score >= 0)
      .sort((one, other) => other.score - one.score)
      .map((each) => each.command);
    list.hidden = !found.length;
    box.setAttribute("aria-expanded", String(!list.hidden));
    at = 0;
    if (list.hidden) return box.removeAttribute("aria-activedescendant");
    clear(
      list,
      found.map((command, index) =>
        el(
          "div",
          {
            class: "menu-item",
            role: "option",
            id: `slash-${index}`,
            on: { pointerdown: (event) => (event.preventDefault(), choose(index)) },
          },
          el("span", { class: "mono" }, command.name),
          el("span", { class: "menu-item-side slash-meaning" }, command.meaning),
        ),
      ),
    );
    point(0);
  }

  function point(index) {
    at = (index + found.length) % found.length;
    [...list.children].forEach((row, each) => row.setAttribute("aria-selected", String(each === at)));
    list.children[at].scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", `slash-${at}`);
  }

  function choose(index) {
    fill(`${found[index].name} `);
    update();
  }

  /** Whether the list handled the key. */
  function key(event) {
    if (list.hidden) return false;
    const whole = found[at].name === box.value.toLowerCase();
    if (event.key === "ArrowDown") point(at + 1);
    else if (event.key === "ArrowUp") point(at - 1);
    else if (event.key === "Tab" || (event.key === "Enter" && !whole)) choose(at);
    else if (event.key === "Escape") list.hidden = true;
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  box.setAttribute("role", "combobox");
  box.setAttribute("aria-autocomplete", "list");
  box.setAttribute("aria-controls", list.id);
  box.setAttribute("aria-expanded", "false");
  return { node: list, update, key };
}
