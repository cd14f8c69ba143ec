"""Palinurus: a home for personal AI agents. `from palinurus import Pal` uses one from a Python program (library.py)."""

__version__ = "0.1.0"

TYPE_CHECKING = False  # read by type checkers, which know the name; to import typing takes longer than all of this
if TYPE_CHECKING:
    from palinurus.domain.errors import PalinurusError as PalinurusError
    from palinurus.library import Pal as Pal
else:

    def __getattr__(name):
        """Imported when first used: `pal --version` imports nothing."""
        if name not in ("Pal", "PalinurusError"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # by name: the library stands above everything that asks for the version

        return getattr(import_module("palinurus.library"), name)
