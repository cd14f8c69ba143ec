"""SQL lives in .sql files: each query has a name, a reason, and colours in every editor.

-- entries_of --
-- The whole transcript of a session, oldest first.
SELECT ...;
"""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent / "sql"
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


def load_queries(file: str) -> dict[str, str]:
    """The queries of one file by name."""
    parts = _NAME.split((_HERE / file).read_text(encoding="utf-8"))
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def migration_files(folder: str) -> list[tuple[int, str, str]]:
    """Number, name and text of every migration of a database, in order."""
    files = sorted((_HERE / folder).glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [(int(path.name[:4]), path.stem[5:], path.read_text(encoding="utf-8")) for path in files]
