"""The very first lines that run: answer `--version` before anything heavy is imported."""

import sys
from importlib import import_module

from palinurus import __version__


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"pal {__version__}")
        return
    # By name, as commands are in cli/main.py: with an import above, --version would cost what a turn costs.
    import_module("palinurus.cli.main").run()


if __name__ == "__main__":
    main()
