"""Headless Chromium over its DevTools protocol, by a pair of pipes: needs Python's own library alone.

    with Browser() as browser:
        page = browser.open("file:///tmp/report.html")
        page.value("document.title")

Run as a program it fails where there is no browser that works.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT = 60


def works(path):
    """Ubuntu's chromium-browser, for one, only says how to install the real one."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=TIMEOUT).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find():
    """The program, or None."""
    return next((path for path in map(shutil.which, NAMES) if path and works(path)), None)


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp()
        to_child, self.write_fd = os.pipe()
        self.read_fd, from_child = os.pipe()

        def connect():  # the protocol wants file descriptors 3 and 4
            os.dup2(to_child, 13)
            os.dup2(from_child, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--force-color-profile=srgb", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.buffer = b""
        self.number = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for fd in (self.write_fd, self.read_fd):
            os.close(fd)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self.read_fd, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_fd, data):]
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def open(self, url, width=1240, height=900, dark=False):
        return Page(self, url, width, height, dark)


class Page:
    """A page that is loaded and drawn. `seconds` is how long that took; `complaints` what it wrote to the console."""

    def __init__(self, browser, url, width, height, dark):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.resize(width, height)
        self.media("screen", dark)
        browser.events.clear()
        start = time.monotonic()
        self.call("Page.navigate", url=url)
        self.wait("document.documentElement && document.documentElement.hasAttribute('data-ready') && document.readyState === 'complete'")
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        self.seconds = time.monotonic() - start

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, media, dark):
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            detail = result["exceptionDetails"]
            raise RuntimeError(detail.get("exception", {}).get("description", detail["text"]))
        return result["result"].get("value")

    def wait(self, expression):
        deadline = time.monotonic() + TIMEOUT
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.01)

    @property
    def complaints(self):
        self.value("1")  # whatever is on its way comes before the answer
        texts = []
        for event in self.browser.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                texts.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                texts.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                texts.append(params["entry"]["text"])
        return texts

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, key):
        code = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}.get(key, 0)
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def height(self):
        return self.value("document.documentElement.scrollHeight")

    def screenshot(self, path, top=0, height=None):
        width = self.value("innerWidth")
        height = height or self.height()
        self.resize(width, top + height)
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                         clip={"x": 0, "y": top, "width": width, "height": height, "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def pdf(self, path):
        sheet = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69)
        with open(path, "wb") as file:
            file.write(base64.b64decode(sheet["data"]))


if __name__ == "__main__":
    sys.exit(not find())
