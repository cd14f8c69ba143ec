"""Where tools store text: approvals, whole tool results, and files of sandboxes, tools and skills."""

from __future__ import annotations

from palinurus.domain.text_places import TextFiles, TextRows
from palinurus.tools.registry import results_folder

SQL = ("tool_places", __file__)

PLACES = (
    TextRows("approvals", "decided approvals", "remove", *SQL, kept={"approvals": "a pending approval"}),
    TextRows("grants", "grants", "remove", *SQL),
    TextFiles(r"results/.*", "text", folder_of=results_folder),
    TextFiles(r"(sandboxes|skills|tools)/.*", "stays", "a file of tools or skills; --files rewrites it", is_work=True),
)
