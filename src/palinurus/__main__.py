"""The very first lines that run: answer `--version` before anything heavy is imported."""

import sys


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from palinurus import __version__

        print(f"pal {__version__}")
        return
    from palinurus.cli.main import run

    run()


if __name__ == "__main__":
    main()
