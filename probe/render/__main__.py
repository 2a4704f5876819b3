"""``python -m probe.render build`` and ``serve``: the site from the committed records."""

from __future__ import annotations

import signal
import sys
import traceback
from pathlib import Path

from probe.arguments import Parser, whole
from probe.errors import ProbeError, unforeseen
from probe.render.serve import serve
from probe.render.site import build


def _terminated(number: int, frame: object) -> None:
    """Ends the process as an error would, so that what a build has begun is removed."""
    raise SystemExit(128 + number)


def main(arguments: list[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(prog="python -m probe.render", description="Build the site from the committed records; serve it.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (("build", "build the site"), ("serve", "build the site, serve it and print its address")):
        sub = verbs.add_parser(verb, help=text, description=text)
        sub.add_argument("--records", type=Path, help="directory of the records (default: site_src/records)")
        sub.add_argument("--site", type=Path, help="directory to build into (default: site)")
        if verb == "serve":
            sub.add_argument("--port", type=whole(0, "a port"), default=8000, help="port; 0 takes a free one")
            sub.add_argument("--host", default="127.0.0.1", help="address to serve on")
            sub.add_argument("--no-build", action="store_true", help="serve what was built before")
    options = parser.parse_args(given)

    def make() -> None:
        try:
            built = build(options.records, options.site)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Stopped. What was built before is as it was.") from None
        print(f"Built {built.pages} pages from {built.records} records in {built.seconds:.1f} s: {built.directory}")

    try:
        if options.verb == "build":
            make()
        else:
            serve(options.site, options.host, options.port, (lambda: None) if options.no_build else make)
    except ProbeError as error:
        if "--debug" in given:
            traceback.print_exc()
        print(error, file=sys.stderr)
        return error.status
    except Exception as error:
        if "--debug" in given:
            traceback.print_exc()
        print(f"{unforeseen(error)} (--debug shows the traceback)", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        end_line = "\n" if sys.stderr.isatty() else ""  # after the ^C that a terminal shows
        print(end_line + str(stop), end="\n" if str(stop) else "", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(main())
