# SPDX-License-Identifier: Apache-2.0
"""lodestar COMMAND, or python -m lodestar COMMAND."""
import importlib
import sys

import lodestar

_COMMANDS = {
    "doctor": "checks whether this machine can be a worker of a cluster",
    "psctl": "shows and controls a cluster",
    "server": "starts a server (ps_server)",
    "worker": "starts a worker (gpu_worker)",
}


def main() -> int:
    command = sys.argv[1] if len(sys.argv) > 1 else "help"
    if command in _COMMANDS:
        del sys.argv[1]
        return importlib.import_module("lodestar." + command).main()
    usage = "\n".join(f"  lodestar {name:8}{text}" for name, text in _COMMANDS.items())
    if command == "--version":
        print(f"lodestar {lodestar.__version__}")
        return 0
    if command in ("help", "-h", "--help"):
        print(usage)
        return 0
    print(f"lodestar has no command {command!r}\n{usage}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
