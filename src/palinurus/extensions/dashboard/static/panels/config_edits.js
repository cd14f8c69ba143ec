// The edits of the config form, and everything that a field needs to know about them. Draws nothing.

import { at, fault, reader, reasonAgainst } from "./schema.js";

/**
 * @param {any} config from config.get @param {any} schema from config.schema
 * @param {Map<string, { path: string[], value: any, fault: string }>} edits the edits so far
 */
export function makeEdits(config, schema, edits) {
  const read = reader(schema.schema);
  const own = config.parsed ?? {};
  const key = (path) => JSON.stringify(path);
  const listeners = new Set();

  /** What may be at a path, going down from the root. */
  function shapeAt(path, value) {
    const down = (node, step) => {
      const shape = read.shape(node, {});
      return shape.properties?.[step] ?? shape.values ?? {};
    };
    return read.shape(path.reduce(down, schema.schema), value);
  }

  const form = {
    config,
    schema,
    read,
    edits,
    /** The value in the file; undefined: not set. */
    before: (path) => at(own, path),
    /** The value with the edits so far. */
    value: (path) => (edits.has(key(path)) ? edits.get(key(path)).value : at(own, path)),
    /** The value of an included file where this file has none. */
    inherited: (path) => (at(own, path) === undefined ? scalar(at(config.config, path)) : undefined),
    isChanged: (path) => edits.has(key(path)),
    fault: (path) => edits.get(key(path))?.fault ?? "",
    /** Why it cannot be changed from here. */
    against: (path) => reasonAgainst(schema.uiHints, path),
    shapeAt,
    /** The edits at a path or below it. */
    below: (path) => [...edits.values()].filter((edit) => path.every((step, i) => edit.path[i] === step)),
    /** The keys of a map, new ones included. */
    names(path) {
      const added = form.below(path).filter((edit) => edit.path.length > path.length);
      return new Set([...Object.keys(at(own, path) ?? {}), ...added.map((edit) => edit.path[path.length])]);
    },
    change(path, value, said = "") {
      const same = !said && JSON.stringify(value) === JSON.stringify(at(own, path));
      if (same) edits.delete(key(path));
      else edits.set(key(path), { path, value, fault: said || fault(shapeAt(path, value), value) });
      form.tell();
    },
    /** Listen to every edit. */
    onChange: (fn) => void listeners.add(fn),
    tell: () => listeners.forEach((fn) => fn()),
  };
  return form;
}

const scalar = (value) => (value === null || typeof value === "object" ? undefined : value);
