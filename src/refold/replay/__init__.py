"""Recorded sessions in, a managed run out."""

from refold.replay.importers import detect_format, read_transcript, read_transcripts
from refold.replay.jsonl import write_jsonl
from refold.replay.secrets import redact, redact_transcript
from refold.replay.transcript import Compaction, Skipped, ToolSchema, Transcript, join_transcripts

__all__ = [
    "Compaction",
    "Skipped",
    "ToolSchema",
    "Transcript",
    "detect_format",
    "join_transcripts",
    "read_transcript",
    "read_transcripts",
    "redact",
    "redact_transcript",
    "write_jsonl",
]
