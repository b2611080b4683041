import signal


def main() -> None:
    """Run the command; until it has been imported, Ctrl-C ends the process as any other signal does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from regard.cli import main

    main()


if __name__ == "__main__":
    main()
