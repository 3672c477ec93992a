"""Cancel episodes at every moment and print what they left behind, as rows of a table.

python -m tests.cancels --random 200
"""

from __future__ import annotations

import argparse
import logging
import platform

from tests.cancels.scenes import SCENES, SERVED
from tests.cancels.trial import run_scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=200, help="random moments per scene")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds until something counts as left")
    parser.add_argument("--only", nargs="*", help="names of scenes")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(f"Python {platform.python_version()}", flush=True)
    names = [name for name in (*SCENES, *SERVED) if not args.only or name in args.only]
    for name in names:
        try:
            if name in SCENES:
                canceled, left = run_scene(SCENES[name], args.random, name, args.patience)
            else:
                with SERVED[name]() as scene:
                    canceled, left = run_scene(scene, args.random, name, args.patience)
        except ImportError as error:
            print(f"| {name} | not run: {error} |", flush=True)
            continue
        found = ", ".join(f"{count} {what}" for what, count in sorted(left.items())) or "nothing"
        print(f"| {name} | {canceled} | {found} |", flush=True)


if __name__ == "__main__":
    main()
