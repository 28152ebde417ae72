"""A server for tests: `qkv serve` on a free port, and plain HTTP to it."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

QKV = os.environ.get("QKV", "build/qkv")
MODELS = os.path.join(os.path.dirname(__file__), "..", "cli", "models")


def missing():
    """Why there is no server, or None."""
    done = subprocess.run([QKV, "serve", "no-such-file"], capture_output=True, text=True)
    return "this qkv was built without libmicrohttpd" if done.returncode == 4 else None


class Server:
    def __init__(self, *args):
        self.process = subprocess.Popen([QKV, "serve", "--http", "127.0.0.1:0", *map(str, args)],
                                        stderr=subprocess.PIPE, text=True)
        self.lines, self.port = [], None
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        if not self.port:
            raise RuntimeError("".join(self.lines))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.url = f"127.0.0.1:{self.port}"

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def log(self):
        """The access log so far."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def last_line(self, path, status):
        """The access log's last line of this path and status, once there is one: an answer comes before its line."""
        lines = []
        for _ in range(200):
            lines = [line for line in self.log() if (line["path"], line["status"]) == (path, status)]
            if lines:
                break
            time.sleep(0.05)
        return lines[-1]

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        self.reader.join(10)
        return code

    def connect(self, timeout=20):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, bytes)"""
        with contextlib.closing(self.connect()) as c:
            c.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body), headers or {})
            r = c.getresponse()
            return r.status, r.headers, r.read()

    def get(self, path, headers=None):
        status, _, data = self.ask("GET", path, headers=headers)
        return status, json.loads(data)

    def post(self, path, body, headers=None):
        status, _, data = self.ask("POST", path, body, headers)
        return status, json.loads(data) if data else None

    def metrics(self):
        values = {}
        for line in self.ask("GET", "/metrics")[2].decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def raw(self, data, half=False, timeout=20):
        """What comes back for bytes that need not be HTTP; half: our side is closed first."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            s.sendall(data)
            if half:
                s.shutdown(socket.SHUT_WR)
            got = b""
            with contextlib.suppress(ConnectionError):
                while chunk := s.recv(65536):
                    got += chunk
                    if b"\r\n\r\n" in got and not half:
                        head, _, rest = got.partition(b"\r\n\r\n")
                        length = re.search(rb"Content-Length: (\d+)", head)
                        if length and len(rest) >= int(length.group(1)):
                            break
            return got

    def peak(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return 1024 * int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1))

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def serving(*args):
    server = Server(*args)
    try:
        yield server
    finally:
        server.stop()


def tensor(name, array, datatype, **parameters):
    out = {"name": name, "shape": list(array.shape), "datatype": datatype}
    if parameters:
        out["parameters"] = parameters
    else:
        out["data"] = array.ravel().tolist()
    return out
