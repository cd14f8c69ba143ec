"""Warm turns of hermes, made as its own one-shot makes them, with one agent kept. Run by its own interpreter."""

from __future__ import annotations

from hermes_cli.config import load_config
from hermes_cli.runtime_provider import resolve_runtime_provider
from hermes_cli.tools_config import _get_platform_tools
from hermes_state import SessionDB
from run_agent import AIAgent

from benchmarks import warm


def main() -> None:
    config = load_config()
    runtime = resolve_runtime_provider(requested=None, target_model="test", explicit_base_url=None)
    agent = AIAgent(
        api_key=runtime.get("api_key"),
        base_url=runtime.get("base_url"),
        provider=runtime.get("provider"),
        api_mode=runtime.get("api_mode"),
        model="test",
        enabled_toolsets=sorted(_get_platform_tools(config, "cli")),
        quiet_mode=True,
        platform="cli",
        session_db=SessionDB(),
    )
    agent.suppress_status_output = True

    def turn(said: list[dict[str, str]]) -> dict[str, float]:
        watch = warm.Stopwatch()
        result = agent.run_conversation(warm.QUESTION, conversation_history=said)
        return watch.read(result.get("final_response") or "")

    warm.answer(lambda turns: [turn(warm.history()) for _ in range(turns)])


if __name__ == "__main__":
    main()
