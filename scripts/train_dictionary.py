"""Train the zstd dictionary that refold's savers compress messages with.

    python scripts/train_dictionary.py OUTPUT

The material is generic: messages of LangChain's classes in LangGraph's serialization, with the metadata that several
providers send, around texts from the standard library of this Python (source with line numbers, search results, test
logs, listings, JSON, diffs) and the kinds of prose that agents write. No recorded session and no benchmark text is in
it. A dictionary is part of the storage format: a new one gets a new number, and old ones stay in the package for ever.
"""

import json
import random
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import zstandard
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send

SIZE = 64 * 1024
SEED = 20260101
SAMPLES = 9000

PROSE = (
    "I'll look at the implementation first to understand how this works. Let me check the tests and the configuration. "
    "The error comes from the function that parses the response when the value is missing. Now I will fix the import, "
    "update the documentation and run the test suite again to make sure nothing else is broken. All tests pass. "
    "The file does not exist, so I need to create it. Next, search for usages of this class in the repository. "
    "I found the root cause: the cache is not invalidated when the user changes the settings. Here is a summary of the "
    "changes: added a retry with exponential backoff, removed the deprecated argument, and handled the timeout. "
    "Could you please explain what this module does and add a command line option for the output directory? "
    "The request failed with status code 404. The server returned an empty list of results for the given query. "
)
WORDS = PROSE.split()
TOOLS = (
    "read_file",
    "write_file",
    "edit_file",
    "ls",
    "glob",
    "grep",
    "bash",
    "execute",
    "run_tests",
    "web_search",
    "fetch_url",
    "search",
    "task",
    "write_todos",
    "sql_query",
    "python",
    "list_directory",
    "get_weather",
)


def main(output: str) -> None:
    chance = random.Random(SEED)
    texts = list(_texts(chance))
    serde = JsonPlusSerializer()
    samples = [serde.dumps_typed(value)[1] for value in _values(chance, texts)]
    chance.shuffle(samples)
    trained = zstandard.train_dictionary(SIZE, samples[: SAMPLES * 4 // 5], k=2048, d=8, level=3)
    held_out = samples[SAMPLES * 4 // 5 :]
    compressor = zstandard.ZstdCompressor(level=3, dict_data=trained, write_dict_id=False)
    without = zstandard.ZstdCompressor(level=3)
    raw = sum(map(len, held_out))
    print(f"held out: {sum(len(compressor.compress(s)) for s in held_out) / raw:.3f} of raw with the dictionary, ")
    print(f"          {sum(len(without.compress(s)) for s in held_out) / raw:.3f} without; {len(trained)} bytes")
    Path(output).write_bytes(trained.as_bytes())


def _texts(chance: random.Random) -> Iterator[str]:
    """Windows of standard library sources, dressed as the tool results in which agents see them."""
    library = Path(sysconfig.get_path("stdlib"))
    files = [f for f in sorted(library.rglob("*.py")) if "site-packages" not in f.parts and f.stat().st_size > 2000]
    dresses: Sequence[Callable[[Path, Sequence[str], int, random.Random], str]] = (
        _numbered,
        _plain,
        _search,
        _test_log,
        _listing,
        _as_json,
        _diff,
        _traceback,
    )
    for _ in range(SAMPLES):
        file = chance.choice(files)
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        start = chance.randrange(max(1, len(lines) - 20))
        window = lines[start : start + chance.randint(5, 60)]
        yield chance.choice(dresses)(file.relative_to(library), window, start, chance)


def _numbered(file: Path, lines: Sequence[str], start: int, chance: random.Random) -> str:
    mark = chance.choice(("{:6}\t{}", "{:5}→{}", "{}: {}", "{:>6} | {}"))
    return "\n".join(mark.format(start + n, line) for n, line in enumerate(lines))


def _plain(file: Path, lines: Sequence[str], start: int, chance: random.Random) -> str:
    return "\n".join(lines)


def _search(file: Path, lines: Sequence[str], start: int, chance: random.Random) -> str:
    return "\n".join(f"{file}:{start + n * 7}:{line}" for n, line in enumerate(lines) if line.strip())


def _test_log(file: Path, lines: Sequence[str], start: int, chance: random.Random) -> str:
    tests = "\n".join(
        f"tests/test_{file.stem}.py::Test{file.stem.title()}::test_{chance.choice(WORDS).lower().strip('.,')} "
        f"{chance.choice(('PASSED', 'PASSED', 'FAILED', 'SKIPPED'))} [{n:3}%]"
        for n in range(0, 100, 7)
    )
    seconds = chance.random() * 20
    return (
        "============================= test session starts ==============================\n"
        f"platform linux -- Python 3.12.3, pytest-8.3.2, pluggy-1.5.0\nrootdir: /app\ncollected 15 items\n\n{tests}\n\n"
        "=================================== FAILURES ===================================\n"
        f"    def test_{file.stem}():\n>       assert result == expected\nE       AssertionError: assert 1 == 2\n"
        f"=========================== short test summary info ============================\n"
        f"========================= 2 failed, 13 passed in {seconds:.2f}s ========================="
    )


def _listing(file: Path, lines: Sequence[str], start: int, chance: random.Random) -> str:
    names = [
        f"{chance.choice(WORDS).strip('.,:').lower()}{chance.choice(('.py', '.md', '.json', '/', '.ts'))}"
        for _ in lines
    ]
    if chance.random() < 0.5:
        return "\n".join(
            f"-rw-r--r-- 1 root root {chance.randint(10, 90000):6} Jan 12 10:{n:02} {n2}" for n, n2 in enumerate(names)
        )
    return json.dumps([f"/{file.parent}/{name}" for name in names])


def _as_json(file: Path, lines: Sequence[str], start: int, chance: random.Random) -> str:
    rows = [
        {
            "id": chance.randint(1, 100000),
            "name": chance.choice(WORDS),
            "status": chance.choice(("active", "failed")),
            "score": round(chance.random(), 4),
            "url": f"https://example.com/{chance.choice(WORDS).lower()}",
            "title": " ".join(chance.choices(WORDS, k=6)),
            "created_at": f"2025-0{chance.randint(1, 9)}-11T10:00:00Z",
        }
        for _ in range(chance.randint(2, 12))
    ]
    return json.dumps(chance.choice((rows, {"results": rows, "total": len(rows)})), indent=chance.choice((None, 2)))


def _diff(file: Path, lines: Sequence[str], start: int, chance: random.Random) -> str:
    body = "\n".join(f"{chance.choice(('+', '-', ' '))}{line}" for line in lines)
    span = f"@@ -{start},{len(lines)} +{start},{len(lines)} @@"
    return f"diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n{span}\n{body}"


def _traceback(file: Path, lines: Sequence[str], start: int, chance: random.Random) -> str:
    frames = "\n".join(
        f'  File "/app/{file}", line {start + n}, in {chance.choice(TOOLS)}\n    {line.strip()}'
        for n, line in enumerate(lines[:6])
    )
    error = chance.choice(("ValueError", "KeyError", "TypeError"))
    return f"Traceback (most recent call last):\n{frames}\n{error}: {chance.choice(WORDS)}\n\nExit code: 1"


def _values(chance: random.Random, texts: Sequence[str]) -> Iterator[object]:
    """What a thread stores: mostly calls and results, some questions, answers, sends and interrupts."""
    for number in range(SAMPLES):
        text = texts[number % len(texts)]
        roll = chance.random()
        if roll < 0.46:
            yield _tool(chance, text)
        elif roll < 0.86:
            yield _ai(chance, text)
        elif roll < 0.92:
            yield HumanMessage(_prose(chance, 10, 120), id=_uuid(chance))
        elif roll < 0.94:
            yield SystemMessage(_prose(chance, 50, 200), id=_uuid(chance))
        elif roll < 0.98:
            yield Send("tools", [_call(chance, text)])
        else:
            yield [
                Interrupt(
                    value={"action_requests": [{"name": chance.choice(TOOLS), "args": {"path": "a"}}]},
                    id=_hex(chance, 32),
                )
            ]


def _tool(chance: random.Random, text: str) -> BaseMessage:
    return ToolMessage(
        text,
        name=chance.choice(TOOLS),
        tool_call_id=_call_id(chance),
        id=_uuid(chance),
        status=chance.choice(("success",) * 9 + ("error",)),
    )


def _ai(chance: random.Random, text: str) -> BaseMessage:
    provider = chance.choice((_openai, _responses, _anthropic, _google, _compatible))
    calls = [_call(chance, text) for _ in range(chance.choice((0, 1, 1, 1, 1, 2)))]
    return provider(chance, _prose(chance, 0, 60), calls)


def _openai(chance: random.Random, prose: str, calls: list[dict[str, object]]) -> BaseMessage:
    used = _usage(chance)
    usage = {
        "completion_tokens": used["output_tokens"],
        "prompt_tokens": used["input_tokens"],
        "total_tokens": used["total_tokens"],
        "completion_tokens_details": {
            "accepted_prediction_tokens": 0,
            "audio_tokens": 0,
            "reasoning_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
        "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": 0},
    }
    return AIMessage(
        prose,
        id=f"run--{_uuid(chance)}-0",
        tool_calls=calls,
        additional_kwargs={"refusal": None},
        response_metadata={
            "token_usage": usage,
            "model_provider": "openai",
            "model_name": chance.choice(("gpt-4o-2024-08-06", "gpt-4.1-2025-04-14", "gpt-5-2025-08-07")),
            "system_fingerprint": f"fp_{_hex(chance, 10)}",
            "id": f"chatcmpl-{_token(chance, 29)}",
            "service_tier": "default",
            "finish_reason": "tool_calls" if calls else "stop",
            "logprobs": None,
        },
        usage_metadata={
            **used,
            "input_token_details": {"audio": 0, "cache_read": 0},
            "output_token_details": {"audio": 0, "reasoning": 0},
        },
    )


def _responses(chance: random.Random, prose: str, calls: list[dict[str, object]]) -> BaseMessage:
    content: list[dict[str, object]] = [
        {"type": "reasoning", "id": f"rs_{_hex(chance, 48)}", "summary": [], "encrypted_content": "gAAAAAB"},
        {"type": "text", "text": prose, "annotations": [], "id": f"msg_{_hex(chance, 48)}"},
    ]
    for call in calls:
        content.append(
            {
                "type": "function_call",
                "name": call["name"],
                "arguments": json.dumps(call["args"]),
                "call_id": call["id"],
                "id": f"fc_{_hex(chance, 48)}",
                "status": "completed",
            }
        )
    return AIMessage(
        content,
        id=f"resp_{_hex(chance, 48)}",
        tool_calls=calls,
        response_metadata={
            "id": f"resp_{_hex(chance, 48)}",
            "created_at": 1760000000.0 + chance.randrange(10**7),
            "metadata": {},
            "model": "gpt-5-2025-08-07",
            "object": "response",
            "service_tier": "default",
            "status": "completed",
            "model_provider": "openai",
            "model_name": "gpt-5-2025-08-07",
        },
        usage_metadata={
            **_usage(chance),
            "input_token_details": {"cache_read": chance.randrange(9000)},
            "output_token_details": {"reasoning": 64},
        },
    )


def _anthropic(chance: random.Random, prose: str, calls: list[dict[str, object]]) -> BaseMessage:
    content: list[dict[str, object]] = [{"text": prose, "type": "text"}]
    content += [{"id": c["id"], "input": c["args"], "name": c["name"], "type": "tool_use"} for c in calls]
    used = _usage(chance)
    return AIMessage(
        content if calls else prose,
        id=f"run--{_uuid(chance)}-0",
        tool_calls=calls,
        response_metadata={
            "id": f"msg_01{_token(chance, 22)}",
            "model": "claude-sonnet-4-5-20250929",
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "model_name": "claude-sonnet-4-5-20250929",
            "model_provider": "anthropic",
            "usage": {
                "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "input_tokens": used["input_tokens"],
                "output_tokens": used["output_tokens"],
                "server_tool_use": None,
                "service_tier": "standard",
            },
        },
        usage_metadata={**used, "input_token_details": {"cache_read": 0, "cache_creation": 0}},
    )


def _google(chance: random.Random, prose: str, calls: list[dict[str, object]]) -> BaseMessage:
    return AIMessage(
        prose,
        id=f"run--{_uuid(chance)}-0",
        tool_calls=calls,
        response_metadata={
            "prompt_feedback": {"block_reason": 0, "safety_ratings": []},
            "finish_reason": "STOP",
            "model_name": "gemini-2.5-pro",
            "safety_ratings": [],
            "model_provider": "google_genai",
        },
        usage_metadata={**_usage(chance), "input_token_details": {"cache_read": 0}},
    )


def _compatible(chance: random.Random, prose: str, calls: list[dict[str, object]]) -> BaseMessage:
    return AIMessage(
        prose,
        id=f"run--{_uuid(chance)}",
        tool_calls=calls,
        name=chance.choice((None, "assistant", "agent")),
        response_metadata={
            "finish_reason": "tool_calls" if calls else "stop",
            "model_name": chance.choice(("qwen3-coder", "deepseek-chat", "llama-3.3-70b")),
            "model_provider": "openai",
            "id": _hex(chance, 32),
        },
        usage_metadata=_usage(chance),
    )


def _usage(chance: random.Random) -> dict[str, int]:
    into, out = chance.randrange(200, 120000), chance.randrange(5, 2000)
    return {"input_tokens": into, "output_tokens": out, "total_tokens": into + out}


def _call(chance: random.Random, text: str) -> dict[str, object]:
    folder = chance.choice(("app", "src", "workspace", "home/user/project"))
    path = f"/{folder}/{chance.choice(WORDS).lower().strip('.,:')}.py"
    args: dict[str, object] = chance.choice(
        (
            {"file_path": path},
            {"file_path": path, "offset": chance.randrange(500), "limit": 100},
            {"file_path": path, "content": text[:300]},
            {"file_path": path, "old_string": text[:80], "new_string": text[80:160]},
            {"pattern": chance.choice(WORDS), "path": path, "output_mode": "content"},
            {"command": f"cd /app && python -m pytest {path} -x -q"},
            {"query": " ".join(chance.choices(WORDS, k=5))},
            {"path": path},
            {
                "todos": [
                    {
                        "content": " ".join(chance.choices(WORDS, k=7)),
                        "status": chance.choice(("pending", "in_progress", "completed")),
                    }
                ]
            },
            {"description": " ".join(chance.choices(WORDS, k=30)), "subagent_type": "general-purpose"},
        )
    )
    return {"name": chance.choice(TOOLS), "args": args, "id": _call_id(chance), "type": "tool_call"}


def _prose(chance: random.Random, least: int, most: int) -> str:
    start = chance.randrange(len(WORDS))
    return " ".join((WORDS * 3)[start : start + chance.randint(least, most)])


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _hex(chance: random.Random, size: int) -> str:
    return f"{chance.getrandbits(size * 4):0{size}x}"


def _token(chance: random.Random, size: int) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=size))


def _call_id(chance: random.Random) -> str:
    return chance.choice(
        (
            f"call_{_token(chance, 24)}",
            f"toolu_01{_token(chance, 22)}",
            _uuid(chance),
            f"chatcmpl-tool-{_hex(chance, 32)}",
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
