// `/` in an empty box: the commands that are answered before the model hears of them.

import { el, clear } from "../dom.js";
import { fit } from "../palette.js";
import { wire } from "../wire.js";

// What this release knows; a gateway that can tell (commands.list) knows better.
let commands = [
  ["/new", "start over; what was said stays in the transcript"],
  ["/compact", "sum the conversation up, with an eye on what you name"],
  ["/stop", "stop what is running in this session"],
  ["/status", "model, tokens and state of this session"],
  ["/approve", "what waits for your yes; decide about it"],
  ["/trust", "what is here from outside; what of it you trust"],
  ["/context", "what the prompt is made of and what it costs"],
  ["/models", "the models that can be chosen"],
  ["/whoami", "who you are to this session, and where you speak"],
  ["/help", "this list"],
  ["/model", "which model answers in this session"],
  ["/think", "how hard it thinks: off … max"],
  ["/queue", "messages that come meanwhile: steer, followup, collect or interrupt"],
  ["/verbose", "how much of the work is shown: off, on, full"],
  ["/reasoning", "whether the model's thinking is shown: off, on, stream"],
  ["/elevated", "whether commands may leave the sandbox"],
  ["/usage", "what is shown below each reply: off, tokens, cost, full"],
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
 * The list above the box. It takes the keys it needs and leaves the others.
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

  /** Whether the key was for the list. */
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
