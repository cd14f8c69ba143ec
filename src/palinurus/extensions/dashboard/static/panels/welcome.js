// First run without a model: add an API key, use a server on this machine, or continue with scout, which needs neither.

import { clear, el } from "../dom.js";
import { go } from "../router.js";
import { wire } from "../wire.js";
import { duration } from "./format.js";
import { failure, notice, open, place, sentence } from "./kit.js";
import { button, chip, field, select, worker } from "./parts.js";

export const title = "Welcome";

const NAMES = {
  openai: "OpenAI",
  anthropic: "Anthropic",
  google: "Google Gemini",
  openrouter: "OpenRouter",
  groq: "Groq",
  mistral: "Mistral",
  deepseek: "DeepSeek",
  xai: "xAI",
};

/** @param {HTMLElement} root @param {any} params @returns {() => void} */
export function mount(root, params) {
  const view = open(root, params, title, "Your agent is ready. Choose the model it uses.");
  const host = place(view, "welcome");
  const ask = () =>
    Promise.all([
      wire.call("onboarding.look", {}, { reads: true }),
      wire.call("models.status", { agent: view.agent }).catch(() => null),
    ]);
  const look = () =>
    host.load(ask, ([around, status]) => [
      status ? atTheMoment(status) : null,
      el("div", { class: "choices" }, keyCard(around, look), serverCard(around, look), scoutCard()),
    ]);
  view.body.append(host.node);
  look();
  return view.close;
}

function atTheMoment({ model, reason }) {
  const why = el("span", { class: "quiet" }, sentence(reason));
  return el("p", { class: "flow" }, "Current model: ", chip(model, "accent"), why);
}

/** A key is sent once, stored as a secret, and never shown again. */
function keyCard(around, again) {
  const providers = around.providers;
  let provider = providers.find((each) => !each.hasKey)?.provider ?? providers[0]?.provider ?? "openai";
  const told = el("div", { "aria-live": "polite" });
  const secret = el("input", {
    class: "field mono",
    type: "password",
    autocomplete: "off",
    spellcheck: false,
    placeholder: "sk-…",
    on: { keydown: (event) => event.key === "Enter" && save.click() },
  });
  const named = (each) => `${NAMES[each.provider] ?? each.provider}${each.hasKey ? " (key stored)" : ""}`;
  const choose = (value) => {
    provider = value;
  };
  const chooser = select(
    providers.map((each) => [each.provider, named(each)]),
    provider,
    choose,
  );

  async function keep() {
    const key = secret.value.trim();
    if (!key) return secret.focus();
    clear(told, el("p", { class: "quiet" }, "Testing the model…"));
    try {
      // Not through the outbox, where it could be read until it is answered.
      const stored = await wire.call("credentials.set", { provider, secret: key }, { reads: true });
      secret.value = "";
      const known = providers.find((each) => each.provider === provider);
      const works = await tried(told, known?.model ? `${provider}/${known.model}` : "", again);
      if (!works) told.append(takeBack(stored.id, told));
    } catch (error) {
      clear(told, failure(error));
    }
    return undefined;
  }
  const save = worker("Save and test", keep, "");
  return el(
    "section",
    { class: "card choice", "aria-labelledby": "choice-key" },
    el("h2", { id: "choice-key" }, "Add an API key"),
    el(
      "p",
      {},
      "From a provider you have an account with. It is stored as a secret on this machine and never shown again.",
    ),
    field("Provider", chooser),
    field("API key", secret),
    el("div", { class: "flow choice-foot" }, save),
    told,
  );
}

function takeBack(id, told) {
  const remove = async () => {
    await wire.call("credentials.remove", { id });
    clear(told, notice("Removed.", "ok"));
  };
  return el("p", { class: "flow" }, "The key is stored anyway. ", worker("Remove key", remove));
}

function serverCard(around, again) {
  const told = el("div", { "aria-live": "polite" });
  const models = around.servers.flatMap((server) =>
    server.models.map((model) => [`${server.provider}/${model}`, `${model} (${server.name})`]),
  );
  let chosen = models[0]?.[0] ?? "";
  const body = models.length
    ? [
        el("p", {}, "A server was found. Nothing leaves this machine."),
        field(
          "Model",
          select(models, chosen, (value) => {
            chosen = value;
          }),
        ),
        el(
          "div",
          { class: "flow choice-foot" },
          worker("Use this model", async () => void (await tried(told, chosen, again)), ""),
        ),
      ]
    : [
        el("p", {}, "No server found. Start Ollama, LM Studio, vLLM or llama.cpp on this machine, then check again."),
        el("pre", { class: "command mono" }, "ollama run qwen3"),
        el("div", { class: "flow choice-foot" }, worker("Check again", again)),
      ];
  return el(
    "section",
    { class: "card choice", "aria-labelledby": "choice-server" },
    el("h2", { id: "choice-server" }, "Use a local server"),
    body,
    told,
  );
}

function scoutCard() {
  return el(
    "section",
    { class: "card choice", "aria-labelledby": "choice-scout" },
    el("h2", { id: "choice-scout" }, "Continue with scout"),
    el(
      "p",
      {},
      "Scout is built in and free. It searches your notes and files, remembers what you tell it, and says what it cannot do.",
    ),
    el(
      "p",
      { class: "quiet" },
      "Try: ",
      el("q", {}, "remember that the boat is called Alma"),
      ", then ",
      el("q", {}, "what is the boat called?"),
    ),
    el(
      "div",
      { class: "flow choice-foot" },
      button("Start chatting", () => go("/"), ""),
    ),
  );
}

/** Test the model, and make it the default of all agents when it answers. @returns {Promise<boolean>} whether it did */
async function tried(told, model, again) {
  try {
    const report = await wire.call("models.test", { ref: model });
    if (!report.ok) {
      clear(told).append(
        notice(sentence(`${report.asked} did not answer: ${report.error}`), "bad"),
        ...(report.hint ? [el("p", {}, sentence(report.hint))] : []),
      );
      return false;
    }
    if (model) await wire.call("models.set", { model });
    clear(told).append(
      notice(`${report.answered || report.asked} answered in ${duration(report.totalMs)}.`, "ok"),
      button("Start chatting", () => go("/"), ""),
      button("Check again", again),
    );
    told.querySelector("button").focus();
    return true;
  } catch (error) {
    clear(told).append(failure(error));
    return false;
  }
}
