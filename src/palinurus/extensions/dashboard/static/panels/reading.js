// Where the text of a file comes from: the agent's own files, which can be edited; other files of the workspace and
// collections of memory, which are read only here.

import { wire } from "../wire.js";

const OWN = /^(AGENTS|SOUL|IDENTITY|USER|TOOLS|HEARTBEAT|BOOTSTRAP|MEMORY)\.md$|^memory\/(?!\.)[^/\\]{1,120}\.md$/;
let known = null; // names that the gateway lists

/** Whether `agents.files.set` accepts it. @param {string} path */
export const isOwn = (path) => known?.has(path) || OWN.test(path);

/** @param {string} agent */
export async function listOwn(agent) {
  const listed = await wire.call("agents.files.list", { agentId: agent });
  known = new Set(listed.files.map((file) => file.name));
  return listed;
}

/**
 * @param {string} agent @param {string} path
 * @returns {Promise<{ content?: string, hash?: string, size?: number, updatedAtMs?: number, missing?: boolean, readOnly?: boolean, why?: string }>}
 */
export async function readFile(agent, path) {
  if (isOwn(path)) {
    try {
      return (await wire.call("agents.files.get", { name: path, agentId: agent })).file;
    } catch (error) {
      if (error.code !== "INVALID_REQUEST") throw error; // not one of the agent's own files
    }
  }
  try {
    const found = await wire.call("workspace.read", { path, agentId: agent });
    if (found.binary) return { ...found, content: "", readOnly: true, why: "not text" };
    return { ...found, content: found.text ?? found.content ?? "", readOnly: true };
  } catch (error) {
    if (!path.toLowerCase().endsWith(".md")) throw error;
  }
  const found = await wire.call("memory.get", { path, agent });
  return {
    content: found.text,
    size: new TextEncoder().encode(found.text).length,
    missing: !found.lines,
    readOnly: true,
    why: "read only",
  };
}
