// One field of the config form: a control for its type, its description, and whether it is set, changed or read only.

import { clear, el } from "../dom.js";
import { button, chip, unique } from "./parts.js";
import { written } from "./schema.js";

const MASK = "***";

/**
 * @typedef {object} ConfigEdits what a field knows of its form
 * @property {(path: string[]) => any} value the value with the edits so far; undefined: not set
 * @property {(path: string[]) => any} before the value in the file
 * @property {(path: string[], value: any, fault?: string) => void} change undefined: remove it
 * @property {(path: string[]) => boolean} isChanged @property {(path: string[]) => string} against why it cannot be changed
 * @property {(path: string[]) => string} fault @property {(path: string[]) => any} inherited from an included file
 */

/** @param {ConfigEdits} form @param {string[]} path @param {import("./schema.js").Shape} shape @param {boolean} [told] whether the reason is shown above already */
export function configField(form, path, shape, told = false) {
  const id = unique("config");
  const reason = form.against(path);
  const marks = el("span", { class: "config-marks" });
  const trouble = el("p", { class: "field-fault", id: `${id}-fault`, role: "alert" });
  const control = controlFor(shape, form, path, () => mark());
  control.id = id;
  control.setAttribute("aria-describedby", `${id}-about ${id}-fault`);
  if (reason) control.disabled = true;
  const undo = button(
    "Undo",
    () => {
      form.change(path, form.before(path));
      node.replaceWith(configField(form, path, shape, told));
    },
    "quiet",
    { class: "link", "aria-label": `Undo the change to ${written(path)}` },
  );
  const unset = button(
    "Remove",
    () => {
      form.change(path, undefined);
      node.replaceWith(configField(form, path, shape, told));
    },
    "quiet",
    { class: "link", "aria-label": `Remove ${written(path)} from the config` },
  );
  const node = el(
    "div",
    { class: "config-field" },
    el("div", { class: "config-name" }, el("label", { for: id, class: "mono" }, path.at(-1)), marks),
    el(
      "div",
      { class: "config-control" },
      control,
      trouble,
      el(
        "p",
        { class: "field-hint", id: `${id}-about` },
        shape.description,
        reason && !told
          ? el(
              "span",
              { class: "config-locked" },
              ` Cannot be changed from here: ${reason}. In a terminal: `,
              el("code", {}, `pal config set ${written(path)} …`),
            )
          : null,
      ),
    ),
  );
  function mark() {
    const changed = form.isChanged(path);
    const set = form.value(path) !== undefined;
    clear(marks);
    if (changed) marks.append(chip("changed", "warn"), undo);
    else if (reason) marks.append(chip("read only"));
    if (set && !reason) marks.append(unset);
    node.classList.toggle("is-set", set);
    node.classList.toggle("is-changed", changed);
    trouble.textContent = form.fault(path);
    control.setAttribute("aria-invalid", String(Boolean(form.fault(path))));
  }
  mark();
  return node;
}

function controlFor(shape, form, path, told) {
  const value = form.value(path);
  const put = (next, fault = "") => {
    form.change(path, next, fault);
    told();
  };
  const unset = unsetWords(shape, form.inherited(path));
  switch (shape.kind) {
    case "boolean":
      return chooser(
        [
          ["", unset],
          ["true", "yes"],
          ["false", "no"],
        ],
        value === undefined ? "" : String(value),
        (word) => put(word === "" ? undefined : word === "true"),
      );
    case "choice":
      return chooser(
        [["", unset], ...shape.choices.map((word) => [String(word), String(word)])],
        value === undefined ? "" : String(value),
        (word) => put(word === "" ? undefined : word),
      );
    case "integer":
    case "number":
      return typed(
        { type: "text", inputmode: shape.kind === "integer" ? "numeric" : "decimal", placeholder: unset },
        value === undefined ? "" : String(value),
        (text) => {
          const number = Number(text);
          if (text.trim() === "") put(undefined);
          else put(Number.isFinite(number) ? number : text, Number.isFinite(number) ? "" : "should be a number");
        },
      );
    case "list":
      return area(Array.isArray(value) ? value.join("\n") : "", "one per line", (text) => {
        const lines = text
          .split("\n")
          .map((line) => line.trim())
          .filter(Boolean);
        put(lines.length ? lines : undefined);
      });
    case "secret":
      return typed(
        {
          type: "password",
          autocomplete: "new-password",
          placeholder: value === undefined ? "not set" : "set; type to replace it",
        },
        "",
        (text) => put(text === "" ? form.before(path) : text),
      );
    case "text":
      return typed({ placeholder: unset }, value === undefined || value === MASK ? "" : String(value), (text) =>
        put(text === "" ? undefined : text),
      );
    default:
      return area(value === undefined ? "" : JSON.stringify(value, null, 2), "JSON", (text) => {
        if (!text.trim()) return put(undefined);
        try {
          return put(JSON.parse(text));
        } catch (error) {
          return put(form.value(path), `is not JSON: ${error.message}`);
        }
      });
  }
}

/** The default while nothing is set: descriptions end with it. */
function unsetWords(shape, inherited) {
  if (inherited !== undefined) return `not set here; an included file sets ${JSON.stringify(inherited)}`;
  const told = /(?:Default|Unset:) ([^.]+(?:\.\d+)?)\.?/.exec(shape.description)?.[1];
  const fallback =
    shape.fallback === null || shape.fallback === undefined || typeof shape.fallback === "object"
      ? ""
      : String(shape.fallback);
  const words = told ?? fallback;
  return words ? `default: ${words === "true" ? "yes" : words === "false" ? "no" : words}` : "not set";
}

function chooser(choices, chosen, change) {
  const made = el(
    "select",
    { class: "field", on: { change: () => change(made.value) } },
    choices.map(([value, words]) => el("option", { value }, words)),
  );
  made.value = chosen;
  return made;
}

function typed(props, value, change) {
  const made = el("input", {
    class: "field",
    type: "text",
    autocomplete: "off",
    spellcheck: false,
    ...props,
    on: { input: () => change(made.value) },
  });
  made.value = value;
  return made;
}

function area(value, placeholder, change) {
  const made = el("textarea", {
    class: "field mono",
    spellcheck: false,
    placeholder,
    rows: Math.min(12, Math.max(2, value.split("\n").length + 1)),
    on: { input: () => change(made.value) },
  });
  made.value = value;
  return made;
}
