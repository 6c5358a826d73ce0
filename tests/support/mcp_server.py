"""An MCP server on standard input and output, or on HTTP, that behaves as its first argument says.

  plain            a few tools, each of which does what its name says
  deaf             the same, and it ends neither at the end of its input nor when it is asked to
  daemon           the same, and it has left a process behind that has left its session
  hang             never answers
  exit             says why on standard error and exits with 3
  garbage          prints what is no message, before and between its answers
  late SECONDS     answers after that
  many COUNT       lists that many tools
  endless          lists pages without end
  clash            lists names that are the same to the APIs of models
  hostile          lists what no API takes, and what is too much
  none             lists nothing
  shuffled         lists its tools in another order each time
  http PORTFILE    speaks streamable HTTP on a free port, which it writes to that file

Only the standard library is used. Each message that is read is added to $MCP_LOG, if that is set.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
LOCK = threading.Lock()
OUT = sys.stdout.buffer


def send(message):
    data = json.dumps(message).encode() + b"\n"
    with LOCK:
        OUT.write(data)
        OUT.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def tool(name, properties=None, **more):
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **more}


STRING = {"type": "string"}
TOOLS = [
    tool("echo", {"text": STRING}),
    tool("variable", {"name": STRING}),
    tool("folder"),
    tool("fail"),
    tool("picture"),
    tool("structured"),
    tool("large", {"bytes": {"type": "integer"}}),
    tool("unended"),
    tool("notes", {"count": {"type": "integer"}}),
    tool("work", {"times": {"type": "integer"}}),
    tool("busy"),
    tool("stuck"),
    tool("die"),
    tool("ask"),
    tool("change"),
    tool("spawn"),
]


def listed(cursor):
    if MODE == "many":
        count, page, at = int(sys.argv[2]), 500, int(cursor or 0)
        tools = [tool(f"t{n:05}") for n in range(at, min(at + page, count))]
        return {"tools": tools, **({"nextCursor": str(at + page)} if at + page < count else {})}
    if MODE == "endless":
        return {"tools": [tool("again")], "nextCursor": "again"}
    if MODE == "clash":
        names = ["a.b", "a_b", "a b", "read", "x" * 80, "x" * 79 + "y", "a.b"]
        return {"tools": [tool(name) for name in names]}
    if MODE == "hostile":
        node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
        schema = {"anyOf": [{"$ref": "#/$defs/node"}], "$defs": {"node": node}}
        long = tool("long")
        long["description"] = "word " * 10_000
        return {"tools": [{"name": "tree", "inputSchema": schema}, long]}
    if MODE == "none":
        return {"tools": []}
    if MODE == "shuffled":
        return {"tools": random.sample(TOOLS, len(TOOLS))}
    return {"tools": TOOLS}


def leave(command):
    """Starts a process that leaves its session and its parent."""
    subprocess.run(["sh", "-c", f"setsid {command} >/dev/null 2>&1 </dev/null &"], check=True)


def call(name, arguments, token, reply):
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "variable":
        return text(os.environ.get(arguments["name"], "unset"))
    if name == "folder":
        return text(os.getcwd())
    if name == "fail":
        return text("it cannot be done", isError=True)
    if name == "picture":
        return {"content": [{"type": "image", "data": "A" * 4000, "mimeType": "image/png"}]}
    if name == "structured":
        return {"content": [], "structuredContent": {"rows": 2}}
    if name == "large":
        return text("x" * arguments["bytes"])
    if name == "unended":
        with LOCK:
            for _ in range(1024):
                OUT.write(b"x" * (1 << 20))
            OUT.flush()
        return None
    if name == "notes":
        for n in range(arguments["count"]):
            note("notifications/message", {"level": "info", "data": "x" * 1000})
        return text("noted")
    if name == "work":
        def work():
            for n in range(arguments["times"]):
                time.sleep(0.2)
                note("notifications/progress", {"progressToken": token, "progress": n})
            reply(text("worked"))
        threading.Thread(target=work, daemon=True).start()
        return None
    if name == "busy":  # goes on with other things and never answers
        return None
    if name == "stuck":
        time.sleep(3600)
    if name == "die":
        print("the floor is lava", file=sys.stderr, flush=True)
        os._exit(7)
    if name == "ask":  # a person, a model, and for roots
        message = [{"role": "user", "content": {"type": "text", "text": "hello"}}]
        ask("elicitation/create", {"message": "well?", "requestedSchema": {"type": "object", "properties": {}}})
        ask("sampling/createMessage", {"messages": message, "maxTokens": 9})
        ask("roots/list", {})
        return text(json.dumps([heard() for _ in range(3)]))
    if name == "change":
        note("notifications/tools/list_changed", {})
        return text("changed")
    if name == "spawn":
        leave("sleep 3607")
        return text("spawned")
    return {"error": {"code": -32602, "message": f"no tool {name}"}}


def note(method, params):
    send({"jsonrpc": "2.0", "method": method, "params": params})


ASKED = [1000]


def ask(method, params):
    ASKED[0] += 1
    send({"jsonrpc": "2.0", "id": ASKED[0], "method": method, "params": params})


def heard():
    answer = json.loads(sys.stdin.readline())
    error = answer.get("error")
    return error["code"] if error else answer["result"]


def answer(message, reply):
    method, params = message.get("method"), message.get("params") or {}
    if "MCP_LOG" in os.environ:
        with open(os.environ["MCP_LOG"], "a") as log:
            log.write(json.dumps(message) + "\n")
    if method is None or "id" not in message:
        return
    if method == "initialize":
        reply({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        })
    elif method == "ping":
        reply({})
    elif method == "tools/list":
        reply(listed(params.get("cursor")))
    elif method == "tools/call":
        token = (params.get("_meta") or {}).get("progressToken")
        result = call(params["name"], params.get("arguments") or {}, token, reply)
        if result is not None:
            reply(result)
    else:
        reply({"error": {"code": -32601, "message": method}})


def replier(message, deliver):
    def reply(result):
        both = {"jsonrpc": "2.0", "id": message["id"]}
        both.update(result if "error" in result else {"result": result})
        deliver(both)
    return reply


def serve_lines():
    for line in sys.stdin:
        if MODE == "garbage":
            with LOCK:
                OUT.write(b"npm warn deprecated\n\xff\xfe{]\n[1]\n{\"a\":1}\n\n")
                OUT.flush()
        if line.strip():
            message = json.loads(line)
            answer(message, replier(message, send))


def serve_http(port_file):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def say(self, code, body=b"", kind="application/json"):
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Mcp-Session-Id", "session-1")
            self.end_headers()
            self.wfile.write(body)

        def logged(self, what):
            if "MCP_LOG" in os.environ:
                with open(os.environ["MCP_LOG"], "a") as log:
                    log.write(json.dumps({"http": what, "session": self.headers.get("Mcp-Session-Id")}) + "\n")

        def do_GET(self):
            self.say(405)

        def do_DELETE(self):
            self.logged("DELETE")
            self.say(200)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Authorization") != "Bearer " + os.environ["MCP_TOKEN"]:
                return self.say(401)
            if self.headers.get("X-Team") != "data":
                return self.say(400)
            message = json.loads(body)
            told = threading.Event()
            said = []

            def deliver(both):
                said.append(both)
                told.set()

            if "id" not in message:
                answer(message, None)
                return self.say(202)
            answer(message, replier(message, deliver))
            told.wait(30)
            data = json.dumps(said[0])
            if message["method"] == "tools/call":
                return self.say(200, f"event: message\ndata: {data}\n\n".encode(), "text/event-stream")
            self.say(200, data.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(port_file + ".new", "w") as file:
        file.write(str(server.server_address[1]))
    os.rename(port_file + ".new", port_file)
    server.serve_forever()


def main():
    if MODE == "hang":
        time.sleep(3600)
    if MODE == "exit":
        print("no database at " + os.environ.get("DATABASE", "nowhere"), file=sys.stderr, flush=True)
        sys.exit(3)
    if MODE == "late":
        time.sleep(float(sys.argv[2]))
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "daemon":
        leave("sleep 3606")
    if MODE == "http":
        return serve_http(sys.argv[2])
    serve_lines()
    if MODE == "deaf":
        time.sleep(3600)


main()
