"""Serve a model file on this machine: python scripts/serve_model.py MODEL.gguf [--context 1024] [--port 0]

llama.cpp's own HTTP server, out of the package `xllamacpp`, on the loopback interface: OpenAI's protocol under `/v1`.
It prints the address and serves until its standard input is closed. It has no key and answers whoever asks, so it
listens on this machine alone.
"""

import argparse
import os
import sys

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # threads that spin while they wait starve whatever else runs here


def main() -> int:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_ctx = options.context
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
