"""A web server that behaves badly on request, for tests of downloads.

    python3 web_server.py ROOT

Serves the files of ROOT on a free port of this machine, which is the first line of its output. The first
part of a path says how: /cut/FILE and so on, see the methods below. What was asked for is kept in ROOT/log, a
line "PATH RANGE" for each request. Ends with its standard input.
"""
import http.server
import os
import sys
import threading
import time

ROOT = sys.argv[1]
requests = {}  # how often each path was asked for
lock = threading.Lock()


def count(path):
    with lock:
        requests[path] = requests.get(path, 0) + 1
        return requests[path]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        with lock, open(os.path.join(ROOT, "log"), "a") as log:
            log.write(f"{self.path} {self.headers.get('Range', '-')}\n")
        _, mode, name = (self.path + "/").split("/", 2)
        self.time = count(self.path)
        self.close_connection = True
        method = getattr(self, "do_" + mode.replace("-", "_"), None)
        if method is None:
            self.send_error(404)
        else:
            method(name.rstrip("/"))

    # What is sent.

    def content(self, name):
        with open(os.path.join(ROOT, name), "rb") as file:
            return file.read()

    def first_byte(self):
        text = self.headers.get("Range", "bytes=0-")
        return int(text.split("=")[1].rstrip("-"))

    def head(self, code, length=None, etag=None, content_range=None):
        self.send_response(code)
        self.send_header("Connection", "close")
        if length is not None:
            self.send_header("Content-Length", str(length))
        if etag:
            self.send_header("ETag", etag)
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    def answer(self, data, etag='"one"', most=None, rude=False):
        """Sends what was asked for, at most so many bytes of it, and closes."""
        first = self.first_byte()
        condition = self.headers.get("If-Range")
        if first > 0 and condition and condition != etag and not rude:
            first = 0
        if first >= len(data) > 0 and first > 0:
            self.head(416, 0)
            return
        rest = data[first:]
        if first > 0:
            self.head(206, len(rest), etag, f"bytes {first}-{len(data) - 1}/{len(data)}")
        else:
            self.head(200, len(rest), etag)
        self.wfile.write(rest[:most])

    # How it is sent.

    def do_plain(self, name):
        self.answer(self.content(name))

    def do_untagged(self, name):
        self.answer(self.content(name), etag=None)

    def do_norange(self, name):
        """No word of ranges, and the first connection is cut."""
        data = self.content(name)
        self.head(200, len(data))
        self.wfile.write(data[: len(data) // 2] if self.time == 1 else data)

    def do_cut(self, name):
        """A third of the file a connection."""
        data = self.content(name)
        self.answer(data, most=len(data) // 3 + 1)

    def do_unsized(self, name):
        """No length: only the end of the connection tells that it is all, and the first end lies."""
        data = self.content(name)
        if self.first_byte() == 0:
            self.head(200)
            self.wfile.write(data[: len(data) // 2])
        else:
            self.answer(data)

    def do_stall(self, name):
        """Half of it, then silence; the second connection is fine."""
        data = self.content(name)
        if self.time > 1:
            self.answer(data)
            return
        self.answer(data, most=len(data) // 2)
        self.wfile.flush()
        time.sleep(30)

    def do_silent(self, name):
        time.sleep(30)

    def do_trickle(self, name):
        """Slow, so that there is time to interrupt it."""
        data = self.content(name)[self.first_byte():]
        first = self.first_byte()
        total = first + len(data)
        if first > 0:
            self.head(206, len(data), '"one"', f"bytes {first}-{total - 1}/{total}")
        else:
            self.head(200, len(data), '"one"')
        for at in range(0, len(data), 4096):
            self.wfile.write(data[at:at + 4096])
            self.wfile.flush()
            time.sleep(0.1)

    def do_toolong(self, name):
        """Claims more than it sends."""
        data = self.content(name)
        self.head(200, 2 * len(data))
        self.wfile.write(data)

    def do_tooshort(self, name):
        """Claims less than it sends."""
        data = self.content(name)
        self.head(200, len(data) // 2)
        self.wfile.write(data)

    def do_endless(self, name):
        self.head(200)
        try:
            while True:
                self.wfile.write(bytes(1 << 16))
        except OSError:
            pass

    def do_wrong(self, name):
        data = bytearray(self.content(name))
        data[len(data) // 2] ^= 1
        self.answer(bytes(data))

    def do_changed(self, name):
        """The first connection brings half of an older file."""
        data = self.content(name)
        if self.time == 1:
            self.answer(bytes(len(data)), etag='"old"', most=len(data) // 2)
        else:
            self.answer(data, etag='"new"')

    def do_changed_rude(self, name):
        """The same, and the condition If-Range is not heeded."""
        data = self.content(name)
        if self.time == 1:
            self.answer(bytes(len(data)), etag='"old"', most=len(data) // 2)
        else:
            self.answer(data, etag='"new"', rude=True)

    def do_changed_untold(self, name):
        """The same, and there is no tag to tell."""
        data = self.content(name)
        if self.time == 1:
            self.answer(bytes(len(data)), etag=None, most=len(data) // 2)
        else:
            self.answer(data, etag=None)

    def do_elsewhere(self, name):
        """Another part than was asked for."""
        data = self.content(name)
        first = self.first_byte()
        if first == 0:
            self.answer(data, most=len(data) // 2 if self.time == 1 else None)
        else:
            self.head(206, len(data) - 1, '"one"', f"bytes 1-{len(data) - 1}/{len(data)}")
            self.wfile.write(data[1:])

    def do_error(self, name):
        self.send_error(500)

    def do_busy(self, name):
        """Busy twice, then fine."""
        if self.time < 3:
            self.send_error(503)
        else:
            self.answer(self.content(name))

    def redirect(self, where):
        self.send_response(302)
        self.send_header("Location", where)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def do_loop(self, name):
        self.redirect(self.path)

    def do_moved(self, name):
        self.redirect("/plain/" + name)

    def do_tofile(self, name):
        self.redirect("file://" + os.path.join(ROOT, name))

    def do_nonsense(self, name):
        self.wfile.write(b"this is not HTTP\r\n\r\n" * 100)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # clients hang up in the middle, that is what tests are about


def end_with_input():
    sys.stdin.read()
    os._exit(0)


def main():
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=end_with_input, daemon=True).start()
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
