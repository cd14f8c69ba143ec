// The fields of the config: those of one section, folded where they have parts of their own, or those that fit a search.

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
 * @param {any} desk see config_desk.js @param {boolean} told whether the reason against all of them was told above
 * @returns {HTMLElement[]}
 */
export function fields(desk, path, node, told = false, depth = 0) {
  const shape = desk.read.shape(node, desk.value(path));
  if (shape.kind === "map") return mapFields(desk, path, shape, told, depth);
  if (shape.kind !== "object" || depth > DEEPEST) return [configField(desk, path, shape, told)];
  const inside = Object.entries(shape.properties).map(([name, child]) => part(desk, [...path, name], child));
  return [
    ...inside.filter((each) => !each.nested).map((each) => configField(desk, each.path, each.shape, told)),
    ...inside.filter((each) => each.nested).map((each) => fold(desk, each, told, depth)),
  ];
}

function part(desk, path, child) {
  const shape = desk.read.shape(child, desk.value(path));
  return { path, child, shape, nested: shape.kind === "object" || shape.kind === "map" };
}

/** Drawn when it is opened: the whole config has hundreds of fields. */
function fold(desk, { path, child, shape }, told, depth) {
  const set = desk.value(path) !== undefined || desk.below(path).length > 0;
  const body = el("div", { class: "config-nested" });
  const fill = () => {
    if (unfold.open && !body.childElementCount) body.append(...fields(desk, path, child, told, depth + 1));
  };
  const name = el("span", { class: "mono" }, path.at(-1));
  const about = el("span", { class: "quiet" }, shape.description);
  const summary = el("summary", {}, name, set ? chip("set", "accent") : null, about);
  const unfold = el("details", { class: "config-fold", on: { toggle: fill } }, summary, body);
  unfold.open = set && depth === 0;
  return unfold;
}

function mapFields(desk, path, shape, told, depth) {
  const names = desk.names(path);
  const entry = (name) => fold(desk, part(desk, [...path, name], shape.values), told, depth);
  const list = el("div", {}, [...names].map(entry));
  if (desk.against([...path, "new"])) return [list];
  const name = input({ placeholder: "name of a new one", "aria-label": `Name of a new one in ${written(path)}` });
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
 * Every field that fits, wherever it stands.
 * @param {string[]} sections @param {string} query words, all of which must fit @param {string} filter "", set or changed
 * @returns {HTMLElement[]}
 */
export function found(desk, sections, query, filter) {
  const words = query.split(/\s+/).filter(Boolean);
  const hits = sections
    .flatMap((name) => leaves(desk, [name], desk.read.root.properties[name]))
    .filter(({ path, shape }) => {
      const text = `${written(path)} ${shape.description}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) return false;
      return filter === "set" ? desk.value(path) !== undefined : filter === "changed" ? desk.isChanged(path) : true;
    });
  if (!hits.length) return [empty("No setting fits.", nothing(query, filter))];
  const drawn = hits
    .slice(0, MOST_FOUND)
    .map(({ path, shape }) =>
      el(
        "div",
        { class: "config-hit" },
        el("p", { class: "mono quiet" }, written(path.slice(0, -1))),
        configField(desk, path, shape),
      ),
    );
  return [el("p", { class: "quiet", role: "status" }, count(hits.length, "setting")), ...drawn];
}

function leaves(desk, path, node, depth = 0) {
  const shape = desk.read.shape(node, desk.value(path));
  const below = (name, child) => leaves(desk, [...path, name], child, depth + 1);
  if (shape.kind === "object" && depth <= DEEPEST)
    return Object.entries(shape.properties).flatMap(([name, child]) => below(name, child));
  if (shape.kind === "map") return [...desk.names(path)].flatMap((name) => below(name, shape.values));
  return [{ path, shape }];
}

function nothing(query, filter) {
  if (query) return "Fewer words show more.";
  return filter === "changed" ? "Nothing is changed yet." : "The file sets nothing: everything is as it comes.";
}
