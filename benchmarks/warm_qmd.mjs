// qmd in one warm process, over its own library: for each line with a number, so many rounds of all questions. Speaks
// as benchmarks/warm.py does. Started with the index and a file of questions: {"rare": [...], "natural": [...]}.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [library, dbPath, asked] = process.argv.slice(2);
const { createStore } = await import(library);
const store = await createStore({ dbPath });
const questions = JSON.parse(readFileSync(asked, "utf-8"));

for await (const line of createInterface({ input: process.stdin })) {
  const rounds = [];
  for (let round = 0; round < Number(line); round++) {
    const taken = {};
    for (const [kind, queries] of Object.entries(questions)) {
      for (const [at, query] of queries.entries()) {
        const cpu = process.cpuUsage();
        const began = process.hrtime.bigint();
        const found = await store.searchLex(query, { limit: 20 });
        const wall = Number(process.hrtime.bigint() - began) / 1e6;
        const { user, system } = process.cpuUsage(cpu);
        if (kind === "rare" && found.length === 0) throw new Error(`${query} was not found`);
        taken[`${kind} wall ${at}`] = wall;
        taken[`${kind} cpu ${at}`] = (user + system) / 1e3;
      }
    }
    rounds.push(taken);
  }
  console.log(JSON.stringify(rounds));
}
await store.close();
