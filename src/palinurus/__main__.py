"""The command `pal`. `--version` is answered before anything else is imported."""

import sys

from palinurus import __version__


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"pal {__version__}")
        return
    from palinurus.cli.shell import run  # --version does without

    run()


if __name__ == "__main__":
    main()
