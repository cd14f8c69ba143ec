"""Knowledge: what agents retain as facts, recall in answers, and know of people, places and things.

`facts` reads the bullets of `## Retain` sections, `entities` finds out which names mean the same, `store` holds what
is derived from them, `recall` answers questions, `knowledge` keeps all of it in step with the markdown, the truth.
`beliefs` adds opinions up, `bank` makes pages of it all, `reflect` writes them, and `daily` has it do so.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App

OPERATIONS = {
    "bank.diff": "diff_bank",
    "bank.restore": "restore_bank_page",
    "beliefs": "list_beliefs",
    "proposals": "list_proposals",
    "proposals.accept": "accept_proposal",
    "proposals.reject": "reject_proposal",
    "reflect": "reflect",
}


def register(app: App) -> None:
    app.operation(f"{__name__}.operations:recall", "memory.recall")
    app.operation(f"{__name__}.operations:list_entities", "memory.entities")
    app.operation(f"{__name__}.operations:show_entity", "memory.entities.show")
    app.operation(f"{__name__}.operations:merge_entities", "memory.entities.merge")
    app.operation(f"{__name__}.operations:split_entity", "memory.entities.split")
    app.command("memory recall", f"{__name__}.commands:recall")
    app.command("memory entities", f"{__name__}.commands:entities")
    for name, function in OPERATIONS.items():
        app.operation(f"{__name__}.operations:{function}", f"memory.{name}")
    for name in ("beliefs", "reflect", "proposals", "bank"):
        app.command(f"memory {name}", f"{__name__}.commands:{name}")
    app.make_tools(f"{__name__}.tools:recall_tools")
    app.job(f"{__name__}.daily:REFLECTION_KIND", "memory.reflection")
    app.slash_command("proposals", f"{__name__}.proposals:answer_slash")
    app.hook("memory:noted", f"{__name__}.core_block:refresh_after_notes", "core-memory")
    app.service(f"{__name__}.daily:keep_reflections")
