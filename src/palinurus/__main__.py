"""The very first lines that run: what can be answered before anything heavy is imported is answered here."""

import os
import sys
from importlib import import_module

from palinurus import __version__
from palinurus.cli.kept import kept_answer


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"pal {__version__}")
        return
    if (answer := kept_answer(sys.argv[1:], os.environ)) is not None and _said(answer):
        return
    # By name, as commands are in cli/main.py: with an import above, --version would cost what a turn costs.
    import_module("palinurus.cli.main").run()


def _said(answer: str) -> bool:
    """Whether the terminal could show it. Where it cannot, the ordinary way knows what to do."""
    try:
        print(answer)
        sys.stdout.flush()
    except UnicodeEncodeError:
        return False
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    return True


if __name__ == "__main__":
    main()
