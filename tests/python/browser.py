"""A page in headless Chromium, driven over a pipe (the DevTools protocol; no packages needed).

    with Page(path, width=1280, height=800, dark=True) as page:
        page.run("document.title"); page.key("ArrowDown"); page.errors; page.shot("out.png")
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KEYS = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}


class Page:
    def __init__(self, path, width=1280, height=800, dark=False, tab="summary"):
        self.folder = tempfile.mkdtemp()
        down, self.out = os.pipe()
        self.into, up = os.pipe()

        def pipes():  # Chromium reads from 3 and writes to 4
            first, second = os.dup(down), os.dup(up)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder}", "--disable-dev-shm-usage", "--no-first-run", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pipes, close_fds=False)
        os.close(down)
        os.close(up)
        self.rest, self.number, self.session, self.errors, self.requests = b"", 0, None, [], []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.send(domain + ".enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.send("Page.navigate", url=f"file://{os.path.abspath(path)}#{tab}")
        self.until("document.readyState === 'complete' && !!document.querySelector('[role=tabpanel]')")
        self.settle()

    def send(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.into, 1 << 16)
            assert piece, "Chromium has ended"
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(line)
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif message.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(params["args"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message

    def run(self, expression):
        got = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def until(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.run(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def settle(self):
        """Two frames, so that what was asked for is drawn."""
        self.run("new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f))).then(() => true)")

    def key(self, name, **more):
        code = KEYS.get(name, ord(name.upper()) if len(name) == 1 else 0)
        text = {"text": name} if len(name) == 1 else {"text": "\r"} if name == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=name, windowsVirtualKeyCode=code, **text, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code, **more)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def open(self, tab):
        self.run(f"document.getElementById('tab-{tab}').click()")
        self.settle()

    def shot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)
