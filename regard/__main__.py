import ctypes
import os
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from threading import Thread

WITH_TORCH = ("train", "encode", "demo", "predict", "look", "score", "compare", "export")


def main() -> None:
    """Run the command; until it has been imported, Ctrl-C ends the process as any other signal does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] and sys.argv[1] in WITH_TORCH and not {"-h", "--help"} & set(sys.argv):
        Thread(target=load_ahead, daemon=True).start()
    from regard.cli import main

    main()


def load_ahead() -> None:
    """Load torch's largest library while other modules are imported: both take long, and this one needs no Python."""
    torch = find_spec("torch")
    if torch is not None and torch.origin is not None:
        with suppress(OSError):  # `import torch` will say what is wrong
            ctypes.CDLL(os.path.join(os.path.dirname(torch.origin), "lib", "libtorch_cpu.so"))


if __name__ == "__main__":
    main()
