"""The formats of coding agents, on small hand-written samples."""

import json
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage

from refold.core.blocks import blocks_of
from refold.core.messages import text_of
from refold.replay import Transcript, read_transcript, read_transcripts


def session(tmp_path: Path, records: object) -> Path:
    """JSON lines for a list, one document for anything else."""
    path = tmp_path / "session"
    lines = [json.dumps(record) for record in records] if isinstance(records, list) else [json.dumps(records)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def shape(transcript: Transcript) -> list[tuple[str, str]]:
    return [(message.type, text_of(message)) for message in transcript.messages]


def skipped(transcript: Transcript) -> dict[str, int]:
    return {skip.reason: skip.count for skip in transcript.skipped}


def ai(transcript: Transcript, at: int) -> AIMessage:
    message = transcript.messages[at]
    assert isinstance(message, AIMessage)
    return message


class Claude:
    """Writes records of a Claude Code session, each the child of the one before."""

    def __init__(self) -> None:
        self.records: list[dict[str, object]] = []

    def add(self, kind: str, message: object = None, *, parent: str | None = "", **fields: object) -> str:
        uuid = f"u{len(self.records)}"
        last = str(self.records[-1]["uuid"]) if self.records else None
        record: dict[str, object] = {
            "type": kind,
            "uuid": uuid,
            "parentUuid": last if parent == "" else parent,
            "sessionId": "s",
            "isSidechain": False,
            "timestamp": f"2026-01-01T00:00:{len(self.records):02}Z",
            **({} if message is None else {"message": message}),
            **fields,
        }
        self.records.append(record)
        return uuid

    def user(self, content: object, **fields: object) -> str:
        return self.add("user", {"role": "user", "content": content}, **fields)  # type: ignore[arg-type]

    def reply(self, identity: str, *blocks: object, **fields: object) -> str:
        message = {
            "id": identity,
            "role": "assistant",
            "model": "claude-x",
            "content": list(blocks),
            "usage": {
                "input_tokens": 1,
                "cache_read_input_tokens": 20,
                "cache_creation_input_tokens": 3,
                "output_tokens": 4,
            },
        }
        return self.add("assistant", message, **fields)  # type: ignore[arg-type]


def text(value: str) -> dict[str, object]:
    return {"type": "text", "text": value}


def use(call_id: str, **args: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": args}


def answer(call_id: str, content: object = "ok") -> list[object]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content}]


class TestClaudeCode:
    """A tree of records becomes one log; what is not dialogue is counted."""

    def test_one_reply_over_many_records(self, tmp_path: Path) -> None:
        """Thinking, text and parallel calls are one message, also when results stand between its records."""
        log = Claude()
        log.user("go")
        log.reply("m1", {"type": "thinking", "thinking": "hm", "signature": "sig"})
        log.reply("m1", text("Both."))
        first = log.reply("m1", use("a"))
        log.user(answer("a"))
        second = log.reply("m1", use("b"), parent=first)
        log.user(answer("b"), parent=second)
        log.reply("m2", text("Done."))
        transcript = read_transcript(session(tmp_path, log.records))
        assert shape(transcript) == [("human", "go"), ("ai", "Both."), ("tool", "ok"), ("tool", "ok"), ("ai", "Done.")]
        reply = ai(transcript, 1)
        assert [block.kind for block in blocks_of(reply)] == ["reasoning", "text"]
        assert [call["id"] for call in reply.tool_calls] == ["a", "b"]
        assert reply.usage_metadata is not None
        assert reply.usage_metadata["input_tokens"] == 24
        assert transcript.model == "claude-x"
        assert transcript.skipped == ()

    def test_a_rewind_leaves_a_branch(self, tmp_path: Path) -> None:
        """The path of the last record counts; the other branch is counted as left."""
        log = Claude()
        root = log.user("first")
        fork = log.reply("m1", text("answer"), parent=root)
        log.user("tried this", parent=fork)
        log.reply("m2", text("no good"))
        log.user("tried that", parent=fork)
        log.reply("m3", text("good"))
        transcript = read_transcript(session(tmp_path, log.records))
        assert [line for _, line in shape(transcript)] == ["first", "answer", "tried that", "good"]
        assert skipped(transcript) == {"record of a branch that was left": 2}

    def test_a_compaction_does_not_end_the_log(self, tmp_path: Path) -> None:
        """The log goes on over the boundary; the summary is noted, not part of it."""
        log = Claude()
        log.user("go")
        log.reply("m1", use("a"))
        log.user(answer("a"))
        log.add("system", parent=None, subtype="compact_boundary", compactMetadata={"preTokens": 155})
        log.user("This session is being continued ...", isCompactSummary=True)
        log.reply("m2", text("On."))
        transcript = read_transcript(session(tmp_path, log.records))
        assert shape(transcript) == [("human", "go"), ("ai", ""), ("tool", "ok"), ("ai", "On.")]
        [compaction] = transcript.compactions
        assert (compaction.position, compaction.summary[:12], compaction.tokens_before) == (3, "This session", 155)
        assert skipped(transcript) == {"compaction boundary": 1, "compaction summary": 1}

    def test_sidechains_are_subagents(self, tmp_path: Path) -> None:
        """Each sidechain is a transcript of its own, tied to the call whose prompt it was given."""
        log = Claude()
        log.user("go")
        main = log.reply(
            "m1", {**use("t1", prompt="look here"), "name": "Task"}, {**use("t2", prompt="look there"), "name": "Task"}
        )
        log.user("look there", isSidechain=True, parent=None)
        log.reply("s1", text("nothing there"), isSidechain=True)
        log.user("look here", isSidechain=True, parent=None)
        log.reply("s2", use("x"), isSidechain=True)
        log.user(answer("x"), isSidechain=True)
        log.reply("s3", text("found"), isSidechain=True)
        log.user([*answer("t1", "found"), *answer("t2", "nothing")], parent=main)
        log.reply("m2", text("Found."))
        transcript = read_transcript(session(tmp_path, log.records))
        assert [kind for kind, _ in shape(transcript)] == ["human", "ai", "tool", "tool", "ai"]
        assert [(len(t.messages), t.call_id) for t in transcript.subagents] == [(2, "t2"), (4, "t1")]

    def test_a_file_of_one_agent_alone(self, tmp_path: Path) -> None:
        """Newer versions write each subagent to its own file; it is read as a dialogue."""
        log = Claude()
        log.user("look", isSidechain=True, agentId="abc")
        log.reply("s1", text("found"), isSidechain=True, agentId="abc")
        [transcript] = read_transcripts(session(tmp_path, log.records))
        assert shape(transcript) == [("human", "look"), ("ai", "found")]

    def test_meta_records_and_local_commands(self, tmp_path: Path) -> None:
        """What the tool wrote for itself is counted; the prompt behind a slash command is kept."""
        log = Claude()
        log.user("<local-command-caveat>Caveat</local-command-caveat>", isMeta=True)
        log.user("<command-name>/exit</command-name>")
        log.user("<local-command-stdout>bye</local-command-stdout>")
        log.user("<command-name>/review</command-name>")
        log.user([text("Review the branch like this ...")], isMeta=True)
        log.reply("m1", text("Reviewed."))
        log.user("a hook says hello", isMeta=True)
        log.add(
            "assistant", {"id": "e", "model": "<synthetic>", "content": [text("API Error")]}, isApiErrorMessage=True
        )
        log.add("attachment")
        log.add("progress")
        log.user("thanks")
        transcript = read_transcript(session(tmp_path, log.records))
        assert [line[:11] for _, line in shape(transcript)] == ["<command-na", "Review the ", "Reviewed.", "thanks"]
        assert skipped(transcript) == {
            "local command": 3,
            "meta record": 1,
            "reply written by Claude Code itself": 1,
            "attachment record": 1,
            "progress record": 1,
        }

    def test_a_lost_line_does_not_lose_the_rest(self, tmp_path: Path) -> None:
        """Every record's parent is gone once; the path goes on with the record before."""
        log = Claude()
        log.user("one")
        log.reply("m1", text("1"))
        log.user("two")
        log.reply("m2", text("2"))
        for gone in range(3):
            records = [record for at, record in enumerate(log.records) if at != gone]
            assert len(read_transcript(session(tmp_path, records)).messages) >= 2

    def test_copies_of_a_record(self, tmp_path: Path) -> None:
        """A resumed session repeats records; each counts once."""
        log = Claude()
        log.user("one")
        log.reply("m1", use("a"))
        log.user(answer("a"))
        transcript = read_transcript(session(tmp_path, [*log.records, *log.records]))
        assert len(transcript.messages) == 3
        assert skipped(transcript) == {"record that stands there twice": 3}


def item(kind: str, **fields: object) -> dict[str, object]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": {"type": kind, **fields}}


def said(role: str, *texts: str, **fields: object) -> dict[str, object]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": line} for line in texts], **fields)


class TestCodex:
    """Items are read, events are counted."""

    def records(self) -> list[dict[str, object]]:
        usage = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 9, "reasoning_output_tokens": 5}
        return [
            {"type": "session_meta", "payload": {"id": "x", "base_instructions": {"text": "You are Codex."}}},
            said("developer", "Sandbox off."),
            said("user", "# AGENTS.md instructions for /repo", "<environment_context>x</environment_context>"),
            {"type": "turn_context", "payload": {"model": "gpt-x"}},
            said("user", "Fix it."),
            {"type": "event_msg", "payload": {"type": "user_message", "message": "Fix it."}},
            item("reasoning", id="rs1", summary=[{"type": "summary_text", "text": "Look."}], encrypted_content="e"),
            {"type": "event_msg", "payload": {"type": "agent_message", "message": "Looking."}},
            said("assistant", "Looking.", id="msg1"),
            item("function_call", name="exec", arguments='{"cmd": "ls"}', call_id="c1"),
            item("local_shell_call", call_id="c2", action={"type": "exec", "command": ["ls"]}),
            item("function_call_output", call_id="c1", output="a\nb"),
            item("function_call_output", call_id="c2", output={"content": "denied", "success": False}),
            {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": usage}}},
            {
                "type": "event_msg",
                "payload": {"type": "token_count", "info": {"last_token_usage": {**usage, "output_tokens": 1}}},
            },
            {
                "type": "compacted",
                "payload": {"message": "so far", "replacement_history": [said("user", "Fix it.")["payload"]]},
            },
            item("custom_tool_call", name="apply_patch", call_id="c3", input="*** Begin Patch"),
            item("custom_tool_call_output", call_id="c3", output="done"),
            item("ghost_snapshot", ghost_commit={}),
            said("assistant", "Fixed."),
        ]

    def test_items(self, tmp_path: Path) -> None:
        """One reply with its reasoning and parallel calls, the instructions as system prompt, usage once."""
        transcript = read_transcript(session(tmp_path, self.records()))
        assert transcript.system is not None
        assert transcript.system.startswith("You are Codex.\n\nSandbox off.\n\n# AGENTS.md")
        assert [kind for kind, _ in shape(transcript)] == ["human", "ai", "tool", "tool", "ai", "tool", "ai"]
        first = ai(transcript, 1)
        assert [block.kind for block in blocks_of(first)] == ["reasoning", "text"]
        assert [(c["name"], c["args"]) for c in first.tool_calls] == [
            ("exec", {"cmd": "ls"}),
            ("local_shell", {"type": "exec", "command": ["ls"]}),
        ]
        assert first.usage_metadata is not None
        assert first.usage_metadata["output_tokens"] == 9
        assert ai(transcript, 4).tool_calls[0]["args"] == {"input": "*** Begin Patch"}
        denied = transcript.messages[3]
        assert isinstance(denied, ToolMessage)
        assert (denied.content, denied.status) == ("denied", "error")

    def test_what_is_no_item_is_counted(self, tmp_path: Path) -> None:
        """Events, contexts and compactions by kind; the compaction is noted at its place."""
        transcript = read_transcript(session(tmp_path, self.records()))
        assert skipped(transcript) == {
            "session_meta record": 1,
            "turn_context record": 1,
            "event (user_message)": 1,
            "event (agent_message)": 1,
            "event (token_count)": 2,
            "compacted record": 1,
            "item of another kind (ghost_snapshot)": 1,
        }
        assert [(c.position, c.summary) for c in transcript.compactions] == [(4, "so far")]

    def test_bare_items(self, tmp_path: Path) -> None:
        """Older rollouts, and dumps of the Responses API, hold the items without an envelope."""
        items = [record["payload"] for record in self.records() if record["type"] == "response_item"]
        for value in ([{"id": "x", "instructions": "Be."}, *items], {"input": items}["input"]):
            transcript = read_transcript(session(tmp_path, value))
            assert transcript.format == "codex"
            assert [kind for kind, _ in shape(transcript)] == ["human", "ai", "tool", "tool", "ai", "tool", "ai"]

    def test_later_context_is_a_message(self, tmp_path: Path) -> None:
        """Only what precedes the first request is part of the system prompt."""
        records = [
            *self.records(),
            said("user", "<environment_context>y</environment_context>"),
            said("developer", "z"),
        ]
        transcript = read_transcript(session(tmp_path, records))
        assert transcript.messages[-2].type == "human"
        assert isinstance(transcript.messages[-1], SystemMessage)


class TestGeminiCli:
    """Calls stand with their results; the line form updates itself."""

    HEAD = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T00:00:00Z"}  # noqa: RUF012

    def messages(self) -> list[dict[str, object]]:
        response = {"functionResponse": {"id": "c1", "name": "read", "response": {"output": "text"}}}
        failure = {"functionResponse": {"id": "c2", "name": "run", "response": {"error": "no"}}}
        picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
        return [
            {"id": "1", "type": "user", "content": [{"text": "see"}, picture], "timestamp": "2026-01-01T00:00:00Z"},
            {
                "id": "2",
                "type": "gemini",
                "content": "Reading.",
                "model": "gemini-x",
                "thoughts": [{"subject": "Plan", "description": "Read both."}],
                "tokens": {"input": 50, "output": 5, "cached": 10, "thoughts": 7, "total": 62},
                "toolCalls": [
                    {"id": "c1", "name": "read", "args": {"p": 1}, "result": [response, picture], "status": "success"},
                    {"id": "c2", "name": "run", "args": {}, "result": [failure], "status": "error"},
                    {"id": "c3", "name": "run", "args": {}, "result": None, "status": "cancelled"},
                ],
            },
            {"id": "3", "type": "info", "content": "Update available"},
            {"id": "4", "type": "gemini", "content": "Done.", "thoughts": [], "tokens": None},
        ]

    def check(self, transcript: Transcript) -> None:
        assert shape(transcript)[0] == ("human", "see")
        assert [kind for kind, _ in shape(transcript)] == ["human", "ai", "tool", "tool", "ai"]
        first = ai(transcript, 1)
        assert [block.text for block in blocks_of(first)] == ["Plan\nRead both.", "Reading."]
        assert first.usage_metadata is not None
        assert (first.usage_metadata["input_tokens"], first.usage_metadata["output_tokens"]) == (50, 12)
        assert [b.kind for b in blocks_of(transcript.messages[2])] == ["text", "media"]
        failed = transcript.messages[3]
        assert isinstance(failed, ToolMessage)
        assert (failed.content, failed.status) == ("no", "error")
        assert [call.call.id for call in transcript.pairing().unanswered()] == ["c3"]
        assert transcript.model == "gemini-x"

    def test_document(self, tmp_path: Path) -> None:
        """One object with all messages."""
        transcript = read_transcript(session(tmp_path, {**self.HEAD, "messages": self.messages()}))
        self.check(transcript)
        assert skipped(transcript) == {"info message": 1}

    def test_lines(self, tmp_path: Path) -> None:
        """A head, messages that replace earlier ones, a rewind, a change of the head."""
        messages = self.messages()
        early = {**messages[1], "toolCalls": []}
        gone = {"id": "9", "type": "user", "content": "never mind"}
        records = [
            self.HEAD,
            messages[0],
            early,
            messages[1],
            gone,
            {"$rewindTo": "9"},
            *messages[2:],
            {"$set": {"summary": "s"}},
        ]
        transcript = read_transcript(session(tmp_path, records))
        self.check(transcript)
        assert skipped(transcript)["message taken back by a rewind"] == 1

    def test_contents(self, tmp_path: Path) -> None:
        """Fault 67: a saved chat's calls have no ids, and keep their thought signatures where the package looks."""
        call = {"functionCall": {"name": "read", "args": {"p": 1}}, "thoughtSignature": "sig"}
        value = {
            "history": [
                {"role": "user", "parts": [{"text": "see"}]},
                {"role": "model", "parts": [{"text": "hm", "thought": True}, call, call]},
                {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "a"}}}] * 2},
                {"role": "model", "parts": [{"text": "Done."}]},
            ]
        }
        transcript = read_transcript(session(tmp_path, value))
        assert shape(transcript) == [("human", "see"), ("ai", ""), ("tool", "a"), ("tool", "a"), ("ai", "Done.")]
        first = ai(transcript, 1)
        signatures = first.additional_kwargs["__gemini_function_call_thought_signatures__"]
        assert signatures == {call["id"]: "sig" for call in first.tool_calls}
        assert transcript.pairing().unanswered() == ()


class TestSweAgent:
    """Both kinds of agents give calls and results."""

    def test_function_calling(self, tmp_path: Path) -> None:
        """Calls of the history, results by `tool_call_ids`."""
        call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
        history = [
            {"role": "system", "content": "s", "agent": "main", "message_type": "system_prompt"},
            {"role": "user", "content": "fix", "agent": "main", "message_type": "observation"},
            {
                "role": "assistant",
                "content": "Look.",
                "thought": "Look.",
                "action": "ls",
                "tool_calls": [call],
                "agent": "main",
            },
            {"role": "tool", "content": "a.py", "tool_call_ids": ["c"], "agent": "main", "message_type": "observation"},
        ]
        transcript = read_transcript(session(tmp_path, {"trajectory": [], "history": history, "info": {}}))
        assert transcript.system == "s"
        assert shape(transcript) == [("human", "fix"), ("ai", "Look."), ("tool", "a.py")]
        assert transcript.pairing().orphans == ()

    @pytest.mark.parametrize("typed", [True, False])
    def test_commands_in_text(self, tmp_path: Path, typed: bool) -> None:
        """A command becomes a call of bash; what the machine answered is its result, and no human message."""
        kind = {"message_type": "observation"} if typed else {}
        history = [
            {"role": "system", "content": "s", "agent": "main"},
            {"role": "user", "content": "fix", "agent": "main", **kind},
            {
                "role": "assistant",
                "content": "Look.\n```\nls\n```",
                "thought": "Look.",
                "action": "ls\n",
                "agent": "main",
            },
            {"role": "user", "content": "a.py", "agent": "main", **kind},
            {"role": "assistant", "content": "Done.", "thought": "Done.", "action": "submit", "agent": "main"},
        ]
        transcript = read_transcript(session(tmp_path, {"history": history, "trajectory": []}))
        assert shape(transcript) == [("human", "fix"), ("ai", "Look."), ("tool", "a.py"), ("ai", "Done.")]
        assert ai(transcript, 1).tool_calls[0]["args"] == {"command": "ls\n"}
        assert len(transcript.pairing().unanswered()) == 1

    def test_steps_alone(self, tmp_path: Path) -> None:
        """Without a history the steps are the dialogue."""
        asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "fix"}]
        steps = [
            {"action": "ls", "observation": "a.py", "response": "r", "thought": "Look.", "query": asked},
            {"action": "", "observation": "", "response": "Nothing to run.", "thought": "", "query": asked},
        ]
        transcript = read_transcript(session(tmp_path, {"trajectory": steps}))
        assert shape(transcript) == [("human", "fix"), ("ai", "Look."), ("tool", "a.py"), ("ai", "Nothing to run.")]
