"""For `import_lock`: loads its table in a thread, which imports this module for the table's name."""

from __future__ import annotations

import threading


def load() -> None:
    from waits_while_imported import NAME

    print(NAME)


loader = threading.Thread(target=load, name="loader")
loader.start()
loader.join()

NAME = "never bound"
