"""Two web pages: one follows a log and requests three changes per click, the other shows the current state.

Run it: python examples/browser_client.py, and open an address that it prints. Ctrl-C ends it.
"""

import contextlib
import functools
import http.server
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from penstock_cdc import ChangeLog, Page, serve

PAGE = Path(__file__).with_name("browser")
OPEN = 10  # open orders; each further order closes the oldest


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        return


@contextlib.contextmanager
def page(directory: Path) -> Iterator[str]:
    """Serves the pages and the client module from one directory; yields the origin."""
    shutil.copytree(PAGE, directory)
    (directory / "penstock.js").write_bytes(Page.of_client().data)
    handler = functools.partial(Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main() -> None:
    stop = threading.Event()
    with (
        tempfile.TemporaryDirectory() as place,
        ChangeLog.open(Path(place, "log"), state=True) as log,
        page(Path(place, "page")) as origin,
        # The server refuses WebSockets from pages of another origin unless the origin is listed.
        serve(log, port=0, origins=[origin]) as server,
    ):
        print(
            f"{origin}/?server={server.url}", f"{origin}/map.html?server={server.url}", sep="\n", flush=True
        )
        number = 0
        while not stop.wait(0.2):
            number += 1
            with log.transaction() as tx:
                tx.upsert("order", str(number), {"total": f"{number}.00"})
                if number > OPEN:
                    tx.remove("order", str(number - OPEN))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
