// The config's JSON Schema as the form needs it: the type of each value, what cannot be changed from here and why, and
// whether a value is valid. Pure.

/**
 * @typedef {"boolean" | "choice" | "integer" | "number" | "text" | "list" | "secret" | "object" | "map" | "json"} Kind
 * @typedef {{ kind: Kind, description: string, node: any, choices?: string[], properties?: Record<string, any>, values?: any, fallback?: any }} Shape
 */

/** A schema with its definitions. @param {any} root */
export function reader(root) {
  const follow = (node) => {
    let found = node ?? {};
    while (found.$ref) found = { ...root.$defs[found.$ref.split("/").at(-1)], ...rest(found) };
    return found;
  };

  /** The type at a node; where several are allowed, the one that the value has. @returns {Shape} */
  function shape(given, value = undefined) {
    const node = follow(given);
    const told = { description: node.description ?? "", node, fallback: node.default };
    const ways = (node.anyOf ?? [node]).filter((way) => way.type !== "null");
    if (ways.some((way) => way.$ref?.endsWith("/SecretRef")))
      return { ...told, kind: typeof value === "object" && value !== null ? "json" : "secret" };
    const way = follow(ways.length === 1 ? ways[0] : chosen(ways.map(follow), value));
    if (!way || !Object.keys(way).length) return { ...told, kind: "json" };
    return {
      ...told,
      description: told.description || way.description || "",
      node: { ...way, ...limits(node) },
      ...kindOf(way),
    };
  }

  function kindOf(way) {
    if (way.enum) return { kind: "choice", choices: way.enum };
    if (way.const !== undefined) return { kind: "choice", choices: [way.const] };
    if (way.type === "boolean" || way.type === "integer" || way.type === "number") return { kind: way.type };
    if (way.type === "string") return { kind: "text" };
    if (way.type === "array")
      return ["string", undefined].includes(follow(way.items).type) && !follow(way.items).anyOf
        ? { kind: "list" }
        : { kind: "json" };
    if (way.properties && Object.keys(way.properties).length) return { kind: "object", properties: way.properties };
    if (way.type === "object" && typeof way.additionalProperties === "object")
      return { kind: "map", values: way.additionalProperties };
    return { kind: "json" };
  }

  return { root: follow(root), shape, follow };
}

const rest = ({ $ref, ...others }) => others;
const limits = ({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }) =>
  JSON.parse(JSON.stringify({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }));

/** Of several types, the one that the value has; a new value gets the simplest. */
function chosen(ways, value) {
  const kind = value === undefined || value === null ? null : Array.isArray(value) ? "array" : typeof value;
  const fits = (way) =>
    way.type === kind || (kind === "number" && way.type === "integer") || (kind === "object" && way.properties);
  const plain = ["boolean", "string", "integer", "number", "array", "object"];
  return (
    ways.find((way) => kind && fits(way)) ?? [...ways].sort((a, b) => plain.indexOf(a.type) - plain.indexOf(b.type))[0]
  );
}

/** The value at a path. @param {any} data @param {string[]} path */
export const at = (data, path) =>
  path.reduce((found, step) => (found === null || typeof found !== "object" ? undefined : found[step]), data);

/**
 * Why a path cannot be changed by a call; empty when it can.
 * @param {Record<string, any>} hints from config.schema: paths with `*` for any one step @param {string[]} path
 */
export function reasonAgainst(hints, path) {
  for (const [place, hint] of Object.entries(hints ?? {})) {
    if (!hint.readOnly) continue;
    const steps = place.split(".");
    if (path.length >= steps.length && steps.every((step, i) => step === "*" || step === path[i])) return hint.reason;
  }
  const names = hints?.["*names*"];
  if (names?.pattern && path.some((step) => new RegExp(`^(?:${names.pattern})$`, "i").test(step))) return names.reason;
  return "";
}

/** What is wrong with a value, in one sentence; empty when it is valid. @param {Shape} shape */
export function fault(shape, value) {
  const { kind, node } = shape;
  if (value === undefined) return "";
  if ((kind === "integer" || kind === "number") && typeof value !== "number") return "must be a number";
  if (kind === "integer" && !Number.isInteger(value)) return "must be a whole number";
  if (typeof value === "number") {
    if (node.minimum !== undefined && value < node.minimum) return `must be at least ${node.minimum}`;
    if (node.exclusiveMinimum !== undefined && value <= node.exclusiveMinimum)
      return `must be more than ${node.exclusiveMinimum}`;
    if (node.maximum !== undefined && value > node.maximum) return `must be at most ${node.maximum}`;
    if (node.exclusiveMaximum !== undefined && value >= node.exclusiveMaximum)
      return `must be less than ${node.exclusiveMaximum}`;
  }
  if (kind === "choice" && !shape.choices.includes(value)) return `must be one of ${shape.choices.join(", ")}`;
  if (kind === "text" && node.minLength && String(value).length < node.minLength) return "must not be empty";
  if (kind === "text" && node.pattern && !new RegExp(node.pattern, "u").test(value)) return "has the wrong format";
  return "";
}

/**
 * Edits as one merge patch: null removes a key.
 * @param {{ path: string[], value: any }[]} changes @returns {object}
 */
export function patchOf(changes) {
  const patch = {};
  for (const { path, value } of changes) {
    let place = patch;
    for (const step of path.slice(0, -1)) place = place[step] ??= {};
    place[path.at(-1)] = value === undefined ? null : value;
  }
  return patch;
}

/** A path as the gateway writes it: `models.providers."my.own".baseUrl`. */
export const written = (path) => path.map((step) => (/^[\w-]+$/.test(step) ? step : JSON.stringify(step))).join(".");
