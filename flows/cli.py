"""The `specdec` command of a process, from its first moment to its last.

Exit codes: 0 success, 1 failure, 2 wrong usage or input, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command of this process; return its exit code.

    An interrupted or terminated process ends here and not with its interpreter: by now rows are
    written and workers ended, while threads of libraries that are still starting would crash an
    interpreter that is being taken down.
    """
    interrupts: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        # Noted as well, because Python drops what is raised in a callback of its own, such as
        # those of the import system: long work asks for the note.
        interrupts.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        # Loaded while interrupts are listened for: it takes longer than anything before it.
        from flows.commands.execute import execute

        code = execute(sys.argv[1:], lambda: bool(interrupts))
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except Exception:
        if not interrupts:
            raise
        code = 1
    if interrupts and code == 1:
        # A library that is interrupted while it loads may say so in words of its own.
        code = 128 + signal.SIGINT
    if code == 128 + signal.SIGINT:
        sys.stderr.write("interrupted: what was finished is stored, run the command again\n")
    if code > 128:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
