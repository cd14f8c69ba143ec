// An empty session teaches by example.

import { el, mark } from "../dom.js";

const EXAMPLES = [
  "Remember that I take my coffee without sugar.",
  "What do you remember about me?",
  "Look through the workspace and tell me what is there.",
  "/status",
];

/** Scout is built in: it stores and finds what it is told, and can do nothing else. */
function scoutNote() {
  return el(
    "p",
    { class: "quiet" },
    "The built-in scout is answering: it stores and finds notes. ",
    el("a", { href: "/welcome" }, "Add a model"),
    " for everything else.",
  );
}

/** @param {(words: string) => void} fill puts text into the box @param {string} model `provider/model` that answers */
export function emptyState(fill, model) {
  const tries = EXAMPLES.map((words) =>
    el("li", null, el("button", { class: "example", type: "button", on: { click: () => fill(words) } }, words)),
  );
  return el(
    "div",
    null,
    mark(),
    el("p", null, "Write a message. What matters is remembered in files that you can read."),
    el("ul", { class: "examples", "aria-label": "Try" }, tries),
    model === "embedded/scout" ? scoutNote() : null,
    el(
      "p",
      { class: "quiet keys" },
      el("kbd", null, "Ctrl K"),
      " everything · ",
      el("kbd", null, "/"),
      " commands · ",
      el("kbd", null, "↑"),
      " last message · ",
      el("kbd", null, "Esc"),
      " stop",
    ),
  );
}
