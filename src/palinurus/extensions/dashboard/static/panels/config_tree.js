// The fields of the config form: those of one section, folded where they have parts, or those that match a search.

import { el } from "../dom.js";
import { configField } from "./config_fields.js";
import { count } from "./format.js";
import { empty } from "./kit.js";
import { button, chip, input } from "./parts.js";
import { written } from "./schema.js";

const DEEPEST = 8;
const MOST_FOUND = 80;

/**
 * The fields below a node: leaves first, then what has parts of its own.
 * @param {any} form see config_edits.js @param {boolean} told whether the reason is shown above already
 * @returns {HTMLElement[]}
 */
export function fields(form, path, node, told = false, depth = 0) {
  const shape = form.read.shape(node, form.value(path));
  if (shape.kind === "map") return mapFields(form, path, shape, told, depth);
  if (shape.kind !== "object" || depth > DEEPEST) return [configField(form, path, shape, told)];
  const inside = Object.entries(shape.properties).map(([name, child]) => part(form, [...path, name], child));
  return [
    ...inside.filter((each) => !each.nested).map((each) => configField(form, each.path, each.shape, told)),
    ...inside.filter((each) => each.nested).map((each) => fold(form, each, told, depth)),
  ];
}

function part(form, path, child) {
  const shape = form.read.shape(child, form.value(path));
  return { path, child, shape, nested: shape.kind === "object" || shape.kind === "map" };
}

/** Drawn when opened: the whole config has hundreds of fields. */
function fold(form, { path, child, shape }, told, depth) {
  const set = form.value(path) !== undefined || form.below(path).length > 0;
  const body = el("div", { class: "config-nested" });
  const fill = () => {
    if (unfold.open && !body.childElementCount) body.append(...fields(form, path, child, told, depth + 1));
  };
  const name = el("span", { class: "mono" }, path.at(-1));
  const about = el("span", { class: "quiet" }, shape.description);
  const summary = el("summary", {}, name, set ? chip("set", "accent") : null, about);
  const unfold = el("details", { class: "config-fold", on: { toggle: fill } }, summary, body);
  unfold.open = set && depth === 0;
  return unfold;
}

function mapFields(form, path, shape, told, depth) {
  const names = form.names(path);
  const entry = (name) => fold(form, part(form, [...path, name], shape.values), told, depth);
  const list = el("div", {}, [...names].map(entry));
  if (form.against([...path, "new"])) return [list];
  const name = input({ placeholder: "new name", "aria-label": `New name in ${written(path)}` });
  const add = () => {
    const made = name.value.trim();
    if (!made || names.has(made)) return name.focus();
    names.add(made);
    name.value = "";
    const fresh = entry(made);
    list.append(fresh);
    fresh.open = true;
    return undefined;
  };
  return [list, el("div", { class: "flow" }, name, button("Add", add))];
}

/**
 * Every field that matches, in any section.
 * @param {string[]} sections @param {string} query words, all of which must match @param {string} filter "", set or changed
 * @returns {HTMLElement[]}
 */
export function found(form, sections, query, filter) {
  const words = query.split(/\s+/).filter(Boolean);
  const hits = sections
    .flatMap((name) => leaves(form, [name], form.read.root.properties[name]))
    .filter(({ path, shape }) => {
      const text = `${written(path)} ${shape.description}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) return false;
      return filter === "set" ? form.value(path) !== undefined : filter === "changed" ? form.isChanged(path) : true;
    });
  if (!hits.length) return [empty("No settings match.", nothing(query, filter))];
  const drawn = hits
    .slice(0, MOST_FOUND)
    .map(({ path, shape }) =>
      el(
        "div",
        { class: "config-hit" },
        el("p", { class: "mono quiet" }, written(path.slice(0, -1))),
        configField(form, path, shape),
      ),
    );
  return [el("p", { class: "quiet", role: "status" }, count(hits.length, "setting")), ...drawn];
}

function leaves(form, path, node, depth = 0) {
  const shape = form.read.shape(node, form.value(path));
  const below = (name, child) => leaves(form, [...path, name], child, depth + 1);
  if (shape.kind === "object" && depth <= DEEPEST)
    return Object.entries(shape.properties).flatMap(([name, child]) => below(name, child));
  if (shape.kind === "map") return [...form.names(path)].flatMap((name) => below(name, shape.values));
  return [{ path, shape }];
}

function nothing(query, filter) {
  if (query) return "Try fewer words.";
  return filter === "changed" ? "You have not changed anything yet." : "The file sets nothing: all settings have their defaults.";
}
