"""Secrets never leave: known shapes and named values are replaced, everything else stays."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from refold.replay import Transcript, redact, redact_transcript

# Assembled from parts, so that no scanner takes this file for a leak.
A, B = "AbCd1234EfGh5678IjKl", "MnOp9012QrSt3456UvWx"
SHAPES = {
    "sk-proj-" + A + B: "API key",
    "sk-ant-" + "api03-" + A + B: "API key",
    "sk_" + "live_" + A: "API key",
    "AIza" + A + B[:15]: "API key",
    "gsk_" + A + B: "API key",
    "hf_" + A + B: "API key",
    "lsv2_" + "pt_" + A + B: "API key",
    "ghp_" + A + B[:16]: "access token",
    "github_pat_" + A + B: "access token",
    "glpat-" + A: "access token",
    "npm_" + A + B: "access token",
    "xoxb-" + "123456789012-" + A: "access token",
    "SG." + A + "." + B: "access token",
    "AKIA" + "IOSFODNN7EXAMPLE": "AWS key",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + A: "JWT",
    "https://hooks.slack.com/services/" + "T000/B000/" + A: "webhook",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd==\n-----END RSA PRIVATE KEY-----": "private key",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn": "private key",
}
NAMED = {
    "password=hunter2222": "password=[redacted: secret]",
    'api_key = "abcd1234efgh"': 'api_key = "[redacted: secret]"',
    '{"password": "hunter22"}': '{"password": "[redacted: secret]"}',
    '{\\"client_secret\\": \\"hunter22\\"}': '{\\"client_secret\\": \\"[redacted: secret]\\"}',
    "AWS_SECRET_ACCESS_KEY=wJalr/XUtn+FEMI": "AWS_SECRET_ACCESS_KEY=[redacted: secret]",
    "db.password: hunter22": "db.password: [redacted: secret]",
    "tool --password hunter22 --x": "tool --password [redacted: secret] --x",
    "Authorization: Bearer abcdefgh12345678": "Authorization: Bearer [redacted: token]",
    "x-api-key: 1234567890abcdef": "x-api-key: [redacted: credentials]",
    "Cookie: sid=abcdefghijkl; b=2": "Cookie: [redacted: credentials]",
    "postgres://me:hunter22@db:5432/x": "postgres://me:[redacted: password]@db:5432/x",
    "AccountName=a;AccountKey=abc123abc123==;X": "AccountName=a;AccountKey=[redacted: secret];X",
}
HARMLESS = [
    "max_tokens=4096 token_count: 5000, tokens: 12345",
    "def f(password: str, token: str | None = None) -> None:",
    "password=$PASSWORD token=${TOKEN} secret=<your secret>",
    "https://example.com:8080/path?q=1 and user@example.com",
    "the password is asked for; a secret place; tokenizer=cl100k",
    "commit 00b2a21f9b7d4c6e8a0b1c2d3e4f5a6b7c8d9e0f, msg_01MgtHToo6NphTfnLqaB3zp1, toolu_016Mr9hfgXFTwrMt9ALR74Nq",
    "BLAKE2b-128 digest 0123456789abcdef0123456789abcdef",
    "密码错误，请重试",
]


class TestSecretsAreReplaced:
    """Every known shape, wherever it stands."""

    @pytest.mark.parametrize("secret", SHAPES)
    @pytest.mark.parametrize("around", ["{}", "key {} here", '"{}"', "值：{}。", "a\n{}\n"])
    def test_shapes(self, secret: str, around: str) -> None:
        """The secret is gone, its kind is named, the text around it is kept."""
        before, after = around.split("{}")
        shown = redact(around.format(secret))
        assert secret not in shown
        assert shown.startswith(before + "[redacted: ")
        assert f"[redacted: {SHAPES[secret]}]" in shown
        if "-----END" in secret or "-----" not in secret:
            assert shown.endswith(after)

    @pytest.mark.parametrize("text", NAMED)
    def test_named_values(self, text: str) -> None:
        """A value that a name calls secret; the name, the quotes and the rest stay."""
        assert redact(text) == NAMED[text]

    @pytest.mark.parametrize("text", HARMLESS)
    def test_harmless_text_stays(self, text: str) -> None:
        """Reports stay readable: words, types, placeholders, ids and digests are no secrets."""
        assert redact(text) == text

    @given(
        st.lists(st.sampled_from([*SHAPES, *NAMED, *HARMLESS, " ", "\n", '"', "=", ": ", "password"]), max_size=8).map(
            "".join
        )
    )
    @example("AIzaAbCd1234EfGh5678IjKlMnOp9012QrSt345sk-proj-AbCd1234EfGh5678IjKlMnOp9012QrSt3456UvWx")
    def test_redacting_twice_changes_nothing(self, text: str) -> None:
        """What replaces a secret is no secret."""
        once = redact(text)
        assert redact(once) == once

    @pytest.mark.parametrize(
        "piece",
        [
            "a",
            "a_b-",
            "token ",
            'password="',
            "http://",
            '"',
            "-----BEGIN PRIVATE KEY-----",
            "secret: ",
            "eyJ",
            "\\",
            "=:",
        ],
    )
    def test_hostile_text_ends(self, piece: str) -> None:
        """Text made to send a pattern back and forth: a quadratic one would run into the time limit of the test."""
        assert redact(piece * (400_000 // len(piece)))


class TestTranscripts:
    """A redacted copy of a session stays a session."""

    def test_texts_go_and_pairing_stays(self) -> None:
        """Contents, arguments, artifacts, the system prompt; ids and media are as they were."""
        key = "ghp_" + A + B
        image = {"type": "image", "base64": "password=hunter2222", "mime_type": "image/png"}
        log = (
            HumanMessage([{"type": "text", "text": f"use {key}"}, image], id="password=hunter2222"),
            AIMessage(
                "", tool_calls=[{"name": "f", "args": {"env": {"api_key": "abcdefgh"}, "x": [key]}, "id": "c"}], id="a"
            ),
            ToolMessage("ok", tool_call_id="c", artifact={"token": "abcdefgh"}, id="t"),
        )
        child = Transcript(name="child", format="f", messages=(HumanMessage(key, id="1"),))
        copy = redact_transcript(Transcript(name="n", format="f", messages=log, system=key, subagents=(child,)))
        assert key not in repr(copy)
        assert "abcdefgh" not in repr(copy)
        assert copy.messages[0].id == log[0].id
        assert copy.messages[0].content[1] == image
        assert copy.pairing().unanswered() == ()
        assert copy.pairing().orphans == ()
